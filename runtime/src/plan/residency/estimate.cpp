// SPDX-License-Identifier: Apache-2.0
// What can be said of a plan's time before its addresses are known.
#include <algorithm>
#include <numeric>

#include "plimsoll/base/bytes.h"

#include "replay.h"

namespace plimsoll::plan {

using graph::StorageId;

namespace {

// Live bytes while each step runs, workspaces included; for a kFree those before it, so that
// whoever is moved in front of it finds room.
std::vector<std::int64_t> live_during(const Problem& problem, const Plan& plan) {
  std::vector<std::int64_t> during;
  during.reserve(plan.steps.size());
  std::vector<std::uint8_t> is_alive(plan.instances.size());
  std::int64_t live = 0;
  const auto size = [&](InstanceId id) {
    return problem.bytes[plan.instances[id.index()].storage.index()];
  };
  const auto begin = [&](InstanceId id) {
    if (!id.valid() || is_alive[id.index()]) return;
    is_alive[id.index()] = 1;
    live += size(id);
  };
  for (const InstanceId id : plan.initial) begin(id);
  for (const Step& step : plan.steps) {
    std::int64_t more = 0;
    if (step.kind == StepKind::kFree) {
      during.push_back(live);
      live -= size(step.instance);
      continue;
    } else if (step.op.valid()) {
      for (const InstanceId id : step.touched) begin(id);
      if (step.taken_over.valid()) live -= size(step.taken_over);
      more = align_up(step.workspace_bytes, plan.alignment_bytes);
    } else {
      begin(step.instance);
    }
    during.push_back(live + more);
  }
  return during;
}

class Hoist {
 public:
  Hoist(const Problem& problem, Plan& plan, std::int64_t budget_bytes)
      : problem_(problem),
        plan_(plan),
        budget_bytes_(budget_bytes),
        during_(live_during(problem, plan)),
        target_(plan.steps.size()) {}

  void run() {
    double time = 0;
    for (const Step& step : plan_.steps) {
      time_.push_back(time);
      if (step.op.valid()) time += step.cost_ns;
    }
    std::iota(target_.begin(), target_.end(), 0U);
    double next_start = time;
    bool moved = false;
    for (std::size_t i = plan_.steps.size(); i-- > 0;) {
      if (plan_.steps[i].kind != StepKind::kPrefetch) continue;
      place(i, next_start);
      moved = moved || target_[i] != i;
    }
    if (moved) reorder();
  }

 private:
  void place(std::size_t i, double& next_start) {
    const Step& step = plan_.steps[i];
    const StorageId s = plan_.instances[step.instance.index()].storage;
    const std::int64_t bytes = problem_.bytes[s.index()];
    const double wanted = std::min(time_[i], next_start) - step.cost_ns;
    std::size_t j = i;
    while (j > 0 && time_[j] > wanted && during_[j - 1] + bytes <= budget_bytes_) {
      const Step& before = plan_.steps[j - 1];
      const bool same = !before.op.valid() && plan_.instances[before.instance.index()].storage == s;
      if (same) break;
      --j;
      during_[j] += bytes;
    }
    target_[i] = j;
    next_start = std::min(next_start, std::max(wanted, time_[j]));
  }

  void reorder() {
    std::vector<std::size_t> order(plan_.steps.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (target_[a] != target_[b]) return target_[a] < target_[b];
      // What moved here stands before the step that was here, the earliest needed first.
      return (target_[a] == a) < (target_[b] == b);
    });
    std::vector<Step> steps;
    steps.reserve(plan_.steps.size());
    for (const std::size_t i : order) steps.push_back(std::move(plan_.steps[i]));
    plan_.steps = std::move(steps);
  }

  const Problem& problem_;
  Plan& plan_;
  std::int64_t budget_bytes_;
  std::vector<std::int64_t> during_;
  std::vector<double> time_;  // of the compute stream before each step, without stalls
  std::vector<std::size_t> target_;
};

}  // namespace

void drop_useless_copies(const Problem& problem, Plan& plan) {
  std::vector<std::int32_t> last_copy(problem.bytes.size(), -1);
  std::vector<std::uint8_t> is_useless(plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.kind != StepKind::kOffload && step.kind != StepKind::kPrefetch) continue;
    const std::size_t s = plan.instances[step.instance.index()].storage.index();
    if (step.kind == StepKind::kPrefetch) {
      if (last_copy[s] >= 0) is_useless[std::size_t(last_copy[s])] = 0;
      continue;
    }
    last_copy[s] = static_cast<std::int32_t>(i);
    is_useless[i] = problem.is_streamed[s] == 0;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (is_useless[i]) continue;
    if (kept != i) plan.steps[kept] = std::move(plan.steps[i]);
    ++kept;
  }
  plan.steps.resize(kept);
}

void hoist_prefetches(const Problem& problem, Plan& plan, std::int64_t budget_bytes) {
  Hoist(problem, plan, budget_bytes).run();
}

double estimate_ns(const Problem& problem, const Plan& plan) {
  double free_at[kStreams] = {};
  double room_at = 0;  // when all bytes freed so far can be used again
  std::vector<double> written(plan.instances.size());
  std::vector<double> used(plan.instances.size());
  std::vector<double> on_host(problem.bytes.size());
  std::vector<std::uint8_t> is_known(plan.instances.size());
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kFree) {
      room_at = std::max(room_at, used[step.instance.index()]);
      continue;
    }
    const auto stream = static_cast<std::size_t>(step.stream());
    double start = free_at[stream];
    if (step.op.valid()) {
      for (const InstanceId id : step.touched) {
        if (!id.valid()) continue;
        start = std::max(start, is_known[id.index()] ? written[id.index()] : room_at);
      }
    } else if (step.kind == StepKind::kOffload) {
      start = std::max(start, written[step.instance.index()]);
    } else {
      const StorageId s = plan.instances[step.instance.index()].storage;
      start = std::max({start, room_at, on_host[s.index()]});
    }
    const double end = free_at[stream] = start + step.cost_ns;
    if (step.op.valid()) {
      for (const InstanceId id : step.touched) {
        if (!id.valid()) continue;
        written[id.index()] = end;
        used[id.index()] = std::max(used[id.index()], end);
        is_known[id.index()] = 1;
      }
      continue;
    }
    used[step.instance.index()] = std::max(used[step.instance.index()], end);
    if (step.kind == StepKind::kPrefetch) {
      written[step.instance.index()] = end;
      is_known[step.instance.index()] = 1;
    } else {
      on_host[plan.instances[step.instance.index()].storage.index()] = end;
    }
  }
  return std::max({free_at[0], free_at[1], free_at[2]});
}

}  // namespace plimsoll::plan
