// SPDX-License-Identifier: Apache-2.0
#include "fit.h"

#include <algorithm>
#include <utility>

#include "plimsoll/base/bytes.h"

#include "draft.h"

namespace plimsoll::plan {

using graph::OpId;

namespace {

constexpr int kRounds = 8;

// By position: how far the blocks that live there reach beyond the budget.
class Overhang {
 public:
  Overhang(const Problem& problem, const Plan& plan, std::int64_t budget_bytes)
      : it_(problem),
        plan_(plan),
        budget_bytes_(budget_bytes),
        born_at_(plan.instances.size(), -1),
        over_(problem.order.size()) {}

  std::vector<std::int64_t> run() {
    for (const InstanceId id : plan_.initial) begin(id);
    for (const Step& step : plan_.steps) {
      if (step.kind == StepKind::kFree) {
        end(step.instance);
        continue;
      }
      for (const InstanceId id : step.touched) begin(id);
      begin(step.instance);
      if (step.taken_over.valid()) end(step.taken_over);
      if (step.workspace_bytes > 0)
        cover(at_, step.workspace_address + aligned(step.workspace_bytes));
      if (step.kind == StepKind::kRun) ++at_;
    }
    for (std::size_t i = 0; i < born_at_.size(); ++i)
      if (born_at_[i] >= 0) end(InstanceId(i));
    return std::move(over_);
  }

 private:
  std::int64_t aligned(std::int64_t bytes) const { return align_up(bytes, plan_.alignment_bytes); }
  void begin(InstanceId id) {
    if (id.valid() && born_at_[id.index()] < 0) born_at_[id.index()] = at_;
  }
  void end(InstanceId id) {
    const Instance& instance = plan_.instances[id.index()];
    cover(born_at_[id.index()], instance.address + it_.bytes[instance.storage.index()]);
    born_at_[id.index()] = -1;
  }
  void cover(std::int64_t from, std::int64_t top) {
    const std::int64_t over = top - budget_bytes_;
    if (over <= 0) return;
    const auto last = std::min(at_ + 1, static_cast<std::int64_t>(over_.size()));
    for (std::int64_t i = from; i < last; ++i)
      over_[std::size_t(i)] = std::max(over_[std::size_t(i)], over);
  }

  const Problem& it_;
  const Plan& plan_;
  std::int64_t budget_bytes_;
  std::vector<std::int64_t> born_at_;  // position; -1: not alive
  std::vector<std::int64_t> over_;
  std::int64_t at_ = 0;
};

// What the op at a position cannot do without.
std::int64_t least_at(const Problem& problem, std::size_t position) {
  const OpId o = problem.order[position];
  std::int64_t bytes = problem.pinned_bytes + problem.workspace_bytes[o.index()];
  for (const Touch& touch : problem.touches[o.index()])
    if (problem.is_pinned[touch.storage.index()] == 0)
      bytes += problem.bytes[touch.storage.index()];
  return bytes;
}

// Adds `part` of what the layout lacked; a half of what the op at a position leaves is not touched,
// so that there is room to rebuild in.
std::vector<std::int64_t> reserve_more(const Problem& problem, const Plan& plan,
                                       std::int64_t budget_bytes, double part,
                                       std::vector<std::int64_t> reserve) {
  reserve.resize(problem.order.size());
  const std::vector<std::int64_t> over = Overhang(problem, plan, budget_bytes).run();
  for (std::size_t i = 0; i < over.size(); ++i) {
    const std::int64_t most = std::max<std::int64_t>(0, budget_bytes - least_at(problem, i)) / 2;
    const auto more = static_cast<std::int64_t>(part * static_cast<double>(over[i]));
    reserve[i] = std::max(reserve[i], std::min(reserve[i] + more, most));
  }
  return reserve;
}

}  // namespace

FittedPlan lay_out(const Problem& problem, const ReplayResult& made, const FitOptions& options) {
  FittedPlan fitted;
  fitted.plan = make_plan(made.draft, problem.device->alignment_bytes);
  place_instances(*problem.graph, fitted.plan, {options.budget_bytes, options.nodes});
  add_waits(*problem.graph, fitted.plan);
  fitted.timeline = simulate_plan(*problem.graph, fitted.plan);
  fitted.offloaded_bytes = made.offloaded_bytes;
  fitted.prefetched_bytes = made.prefetched_bytes;
  fitted.recomputed_ops = made.recomputed_ops;
  return fitted;
}

FittedPlan fit_plan(const Problem& problem, const Decisions& decisions, const ReplayOptions& replay,
                    const FitOptions& options, double least_ns) {
  const auto fits = [&](const FittedPlan& it) {
    return it.plan.arena_bytes <= options.budget_bytes;
  };
  const ReplayResult first = plan::replay(problem, decisions, replay);
  FitOptions quick = options;
  quick.nodes = 0;
  FittedPlan best = lay_out(problem, first, quick);
  if (!fits(best) && options.nodes > 0) {
    FittedPlan searched = lay_out(problem, first, options);
    if (searched.plan.arena_bytes < best.plan.arena_bytes) best = std::move(searched);
  }
  ReplayOptions now = replay;
  Plan last = best.plan;
  double part = 1;
  for (int round = 0; round < kRounds && !fits(best); ++round) {
    ReplayOptions more = now;
    more.reserve_bytes = reserve_more(problem, last, options.budget_bytes, part, now.reserve_bytes);
    const ReplayResult made = plan::replay(problem, decisions, more);
    if (!made.feasible) {
      part /= 2;
      continue;
    }
    now = std::move(more);
    FittedPlan fitted = lay_out(problem, made, quick);
    last = fitted.plan;
    const bool counts = fitted.timeline.total_ns >= least_ns;
    if (counts && last.arena_bytes < best.plan.arena_bytes) best = std::move(fitted);
  }
  return best;
}

}  // namespace plimsoll::plan
