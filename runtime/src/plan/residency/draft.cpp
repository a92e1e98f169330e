// SPDX-License-Identifier: Apache-2.0
#include "draft.h"

#include <algorithm>
#include <numeric>

#include "plimsoll/base/bytes.h"

#include "curve.h"

namespace plimsoll::plan {

using graph::StorageId;

Plan make_plan(const Draft& draft, std::int64_t alignment_bytes) {
  Plan plan;
  plan.alignment_bytes = alignment_bytes;
  plan.live_bytes = draft.peak_bytes;
  plan.initial = draft.initial;
  plan.starts_on_host = draft.starts_on_host;
  plan.instances.reserve(draft.instances.size());
  for (const StorageId s : draft.instances) plan.instances.push_back({s, 0});
  plan.steps.reserve(draft.steps.size());
  for (const DraftStep& from : draft.steps) {
    Step& step = plan.steps.emplace_back();
    step.kind = from.kind;
    step.tier = from.tier;
    step.op = from.op;
    step.instance = from.instance;
    step.taken_over = from.taken_over;
    const auto touched = draft.touched_of(from);
    step.touched.assign(touched.begin(), touched.end());
    step.workspace_bytes = from.workspace_bytes;
    step.cost_ns = from.cost_ns;
  }
  return plan;
}

void drop_useless_copies(const Problem& problem, Draft& draft) {
  std::vector<std::int32_t> last_copy(problem.bytes.size(), -1);
  std::vector<std::uint8_t> is_useless(draft.steps.size());
  for (std::size_t i = 0; i < draft.steps.size(); ++i) {
    const DraftStep& step = draft.steps[i];
    if (step.kind != StepKind::kOffload && step.kind != StepKind::kPrefetch) continue;
    const std::size_t s = draft.instances[step.instance.index()].index();
    if (step.kind == StepKind::kPrefetch) {
      if (last_copy[s] >= 0) is_useless[std::size_t(last_copy[s])] = 0;
      continue;
    }
    last_copy[s] = static_cast<std::int32_t>(i);
    is_useless[i] = problem.is_streamed[s] == 0;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < draft.steps.size(); ++i) {
    if (is_useless[i]) continue;
    if (kept != i) draft.steps[kept] = draft.steps[i];
    ++kept;
  }
  draft.steps.resize(kept);
}

namespace {

// Live bytes while each step runs, workspaces included; for a kFree those before it, so that
// whoever is moved in front of it finds room.
std::vector<std::int64_t> live_during(const Problem& problem, const Draft& draft) {
  std::vector<std::int64_t> during;
  during.reserve(draft.steps.size());
  std::vector<std::uint8_t> is_alive(draft.instances.size());
  std::int64_t live = 0;
  const auto size = [&](InstanceId id) {
    return problem.bytes[draft.instances[id.index()].index()];
  };
  const auto begin = [&](InstanceId id) {
    if (!id.valid() || is_alive[id.index()]) return;
    is_alive[id.index()] = 1;
    live += size(id);
  };
  for (const InstanceId id : draft.initial) begin(id);
  for (const DraftStep& step : draft.steps) {
    std::int64_t more = 0;
    if (step.kind == StepKind::kFree) {
      during.push_back(live);
      live -= size(step.instance);
      continue;
    }
    if (step.op.valid()) {
      for (const InstanceId id : draft.touched_of(step)) begin(id);
      if (step.taken_over.valid()) live -= size(step.taken_over);
      more = align_up(step.workspace_bytes, problem.device->alignment_bytes);
    } else {
      begin(step.instance);
    }
    during.push_back(live + more);
  }
  return during;
}

class Hoist {
 public:
  Hoist(const Problem& problem, Draft& draft, std::int64_t budget_bytes)
      : problem_(problem),
        draft_(draft),
        budget_bytes_(budget_bytes),
        curve_(live_during(problem, draft)),
        target_(draft.steps.size()) {}

  void run() {
    double time = 0;
    time_.reserve(draft_.steps.size());
    std::vector<std::int64_t> last_copy(problem_.bytes.size(), -1);
    copied_before_.assign(draft_.steps.size(), -1);
    for (std::size_t i = 0; i < draft_.steps.size(); ++i) {
      const DraftStep& step = draft_.steps[i];
      time_.push_back(time);
      if (step.op.valid()) {
        time += step.cost_ns;
      } else {
        std::int64_t& last = last_copy[storage_of(step).index()];
        copied_before_[i] = last;
        last = static_cast<std::int64_t>(i);
      }
    }
    std::iota(target_.begin(), target_.end(), 0U);
    double next_start = time;
    bool moved = false;
    for (std::size_t i = draft_.steps.size(); i-- > 0;) {
      if (draft_.steps[i].kind != StepKind::kPrefetch) continue;
      place(i, next_start);
      moved = moved || target_[i] != i;
    }
    if (moved) reorder();
  }

 private:
  void place(std::size_t i, double& next_start) {
    const DraftStep& step = draft_.steps[i];
    const std::int64_t bytes = problem_.bytes[storage_of(step).index()];
    const double wanted = std::min(time_[i], next_start) - step.cost_ns;
    // The first step that begins after `wanted`, behind the last one beside which there is no room
    // and the last other copy of the storage.
    const auto later = std::upper_bound(time_.begin(), time_.begin() + std::ptrdiff_t(i), wanted);
    std::int64_t j = std::max<std::int64_t>(0, later - time_.begin() - 1);
    j = std::max({j, curve_.last_above(i, budget_bytes_ - bytes) + 1, copied_before_[i] + 1});
    j = std::min(j, static_cast<std::int64_t>(i));
    curve_.add(static_cast<std::size_t>(j), i, bytes);
    target_[i] = static_cast<std::size_t>(j);
    next_start = std::min(next_start, std::max(wanted, time_[target_[i]]));
  }
  StorageId storage_of(const DraftStep& step) const {
    return draft_.instances[step.instance.index()];
  }

  void reorder() {
    // What moved stands before the step that was there, the earliest needed first.
    std::vector<std::int32_t> first_moved(draft_.steps.size(), -1);
    std::vector<std::int32_t> next_moved(draft_.steps.size(), -1);
    for (std::size_t i = draft_.steps.size(); i-- > 0;) {
      if (target_[i] == i) continue;
      next_moved[i] = first_moved[target_[i]];
      first_moved[target_[i]] = static_cast<std::int32_t>(i);
    }
    std::vector<DraftStep> steps;
    steps.reserve(draft_.steps.size());
    for (std::size_t i = 0; i < draft_.steps.size(); ++i) {
      for (std::int32_t k = first_moved[i]; k >= 0; k = next_moved[std::size_t(k)])
        steps.push_back(draft_.steps[std::size_t(k)]);
      if (target_[i] == i) steps.push_back(draft_.steps[i]);
    }
    draft_.steps = std::move(steps);
  }

  const Problem& problem_;
  Draft& draft_;
  std::int64_t budget_bytes_;
  Curve curve_;
  std::vector<double> time_;  // of the compute stream before each step, without stalls
  std::vector<std::int64_t> copied_before_;  // the last copy or end of the same storage; -1: none
  std::vector<std::size_t> target_;
};

}  // namespace

void hoist_prefetches(const Problem& problem, Draft& draft, std::int64_t budget_bytes) {
  Hoist(problem, draft, budget_bytes).run();
}

}  // namespace plimsoll::plan
