// SPDX-License-Identifier: Apache-2.0
#include "optimal.h"

#include <algorithm>

#include "plimsoll/base/bytes.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;

namespace {

// Writes the steps that a solution stands for.
class DraftWriter {
 public:
  DraftWriter(const Problem& problem, const OptimalModel& model)
      : it_(problem), model_(model), held_(problem.bytes.size()) {}

  Draft run() {
    for (std::size_t s = 0; s < held_.size(); ++s) {
      const StorageId storage(s);
      if (!it_.graph->live_at_start(storage)) continue;
      if (it_.uses[s].empty() && !it_.graph->live_at_end(storage)) continue;
      make(s);
      draft_.initial.push_back(held_[s]);
    }
    note_peak(0);
    for (std::size_t t = 0; t < model_.stages(); ++t) stage(t);
    for (std::size_t s = 0; s < held_.size(); ++s)
      if (held_[s].valid() && !it_.graph->live_at_end(StorageId(s))) end(s);
    drop_useless_copies(it_, draft_);
    return std::move(draft_);
  }

 private:
  void stage(std::size_t t) {
    for (std::size_t i = 0; i < model_.runs(t).size(); ++i) {
      const std::size_t k = model_.runs(t)[i];
      if (i == 0) free_absent(t, i);
      if (i == 0) fetch(t);
      if (k < t && !model_.again(t, k)) continue;
      if (i > 0) free_absent(t, i);
      run_op(t, k);
    }
    for (std::size_t s = 0; s < held_.size(); ++s) {
      if (!held_[s].valid()) continue;
      if (model_.offloads(t, s)) copy(StepKind::kOffload, s);
      const bool is_dead = it_.last_use(StorageId(s)) <= static_cast<std::int64_t>(t) &&
                           !it_.graph->live_at_end(StorageId(s));
      if (!model_.is_movable(s) && is_dead) end(s);
    }
  }
  // Storages of no bytes stay to the end.
  void free_absent(std::size_t t, std::size_t i) {
    for (std::size_t s = 0; s < held_.size(); ++s)
      if (it_.bytes[s] > 0 && model_.is_movable(s) && held_[s].valid() &&
          !model_.is_present(t, i, s))
        end(s);
  }
  void fetch(std::size_t t) {
    for (std::size_t s = 0; s < held_.size(); ++s) {
      if (!model_.fetches(t, s) || held_[s].valid()) continue;
      make(s);
      note_peak(0);
      copy(StepKind::kPrefetch, s);
    }
  }

  void run_op(std::size_t t, std::size_t k) {
    const OpId o = it_.order[k];
    DraftStep step;
    step.kind = k < t ? StepKind::kRecompute : StepKind::kRun;
    step.op = o;
    step.workspace_bytes = it_.workspace_bytes[o.index()];
    step.cost_ns = it_.cost_ns[o.index()];
    if (!it_.workspace_choices[o.index()].empty())
      step.cost_ns = it_.workspace_choices[o.index()].front().cost_ns;
    const StorageId given = k == t ? handed_over(o, t) : StorageId();
    if (given.valid()) step.taken_over = held_[given.index()];
    step.first_touched = static_cast<std::uint32_t>(draft_.touched.size());
    std::vector<InstanceId> thrown_away;
    for (const Touch& touch : it_.touches[o.index()]) {
      const std::size_t s = touch.storage.index();
      if (k < t && touch.lasts) {
        draft_.touched.emplace_back();
        continue;
      }
      const bool is_second =
          k < t && touch.writes && held_[s].valid() && it_.writers[s].size() == 1;
      if (is_second) {
        thrown_away.push_back(new_instance(s));
        draft_.touched.push_back(thrown_away.back());
        continue;
      }
      if (!held_[s].valid()) make(s);
      draft_.touched.push_back(held_[s]);
    }
    step.touched_count = static_cast<std::uint32_t>(draft_.touched.size()) - step.first_touched;
    if (given.valid()) {
      live_ -= it_.bytes[given.index()];
      held_[given.index()] = InstanceId();
    }
    note_peak(align_up(step.workspace_bytes, it_.device->alignment_bytes));
    draft_.steps.push_back(step);
    for (const InstanceId id : thrown_away) free_instance(id);
  }
  StorageId handed_over(OpId o, std::size_t t) const {
    const StorageId s = it_.graph->inplace_storage(o);
    if (!s.valid() || it_.graph->live_at_end(s) || !held_[s.index()].valid()) return {};
    if (it_.last_use(s) != static_cast<std::int64_t>(t)) return {};
    const StorageId heir = it_.graph->storage(it_.graph->inplace_result(o));
    const bool is_new = !held_[heir.index()].valid() && heir != s;
    return is_new && it_.bytes[heir.index()] == it_.bytes[s.index()] ? s : StorageId();
  }

  InstanceId new_instance(std::size_t s) {
    draft_.instances.emplace_back(s);
    live_ += it_.bytes[s];
    return InstanceId(draft_.instances.size() - 1);
  }
  void make(std::size_t s) { held_[s] = new_instance(s); }
  void free_instance(InstanceId id) {
    DraftStep step;
    step.kind = StepKind::kFree;
    step.instance = id;
    draft_.steps.push_back(step);
    live_ -= it_.bytes[draft_.instances[id.index()].index()];
  }
  void end(std::size_t s) {
    free_instance(held_[s]);
    held_[s] = InstanceId();
  }
  void copy(StepKind kind, std::size_t s) {
    DraftStep step;
    step.kind = kind;
    step.instance = held_[s];
    step.cost_ns =
        it_.device->copy_ns(it_.graph->size_bytes(StorageId(s)), step.stream(), Tier::kHost);
    draft_.steps.push_back(step);
  }
  void note_peak(std::int64_t more) {
    draft_.peak_bytes = std::max(draft_.peak_bytes, live_ + more);
  }

  const Problem& it_;
  const OptimalModel& model_;
  std::vector<InstanceId> held_;  // by storage
  Draft draft_;
  std::int64_t live_ = 0;
};

}  // namespace

OptimalResult solve_optimally(const Problem& problem, const OptimalOptions& options) {
  OptimalResult result;
  result.bound_ns = problem.total_ns;
  if (problem.order.empty() || options.most_ns <= problem.total_ns * (1 + 1e-9)) {
    result.is_proved = true;
    return result;
  }
  OptimalModel model(problem, options);
  const MixedProgram::Outcome outcome = model.program().solve(options.nodes);
  result.is_proved = outcome != MixedProgram::Outcome::kStopped;
  if (outcome == MixedProgram::Outcome::kInfeasible) {
    result.bound_ns = options.most_ns;
    return result;
  }
  result.bound_ns = std::max(result.bound_ns, model.program().bound() * options.most_ns);
  result.has_draft = model.program().has_solution();
  if (result.has_draft) result.draft = DraftWriter(problem, model).run();
  return result;
}

}  // namespace plimsoll::plan
