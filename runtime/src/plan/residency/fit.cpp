// SPDX-License-Identifier: Apache-2.0
#include "fit.h"

#include <limits>
#include <utility>

#include "plimsoll/base/error.h"

#include "arrange.h"

namespace plimsoll::plan {

namespace {

// What moves may cost, in parts of the time, before a layout without them is searched for.
constexpr double kCheapPart = 0.002;
// Where they cost more, the same decisions with so much of the budget left for holes.
constexpr double kRooms[] = {0.03, 0.08, 0.2};

FittedPlan finished(const Problem& problem, const ReplayResult& made, Plan plan) {
  FittedPlan fitted;
  fitted.plan = std::move(plan);
  add_waits(*problem.graph, fitted.plan);
  fitted.timeline = simulate_plan(*problem.graph, fitted.plan);
  fitted.offloaded_bytes = made.offloaded_bytes;
  fitted.prefetched_bytes = made.prefetched_bytes;
  fitted.recomputed_ops = made.recomputed_ops;
  return fitted;
}

}  // namespace

FittedPlan lay_out(const Problem& problem, const ReplayResult& made, const FitOptions& options) {
  Plan plan = make_plan(made.draft, problem.device->alignment_bytes);
  place_instances(*problem.graph, plan, {options.budget_bytes, options.nodes});
  return finished(problem, made, std::move(plan));
}

FittedPlan arrange_in_budget(const Problem& problem, const ReplayResult& made,
                             std::int64_t budget_bytes) {
  Plan plan;
  const bool fits =
      arrange(problem, made.draft, budget_bytes, std::numeric_limits<double>::infinity(), &plan)
          .fits;
  PLIMSOLL_CHECK(fits, "live bytes within the budget do not fit even where they may move");
  return finished(problem, made, std::move(plan));
}

FittedPlan fit_plan(const Problem& problem, const Decisions& decisions, const ReplayOptions& replay,
                    const FitOptions& options, double least_ns) {
  const ReplayResult made = plan::replay(problem, decisions, replay);
  if (!options.may_move) return lay_out(problem, made, options);
  FittedPlan best = arrange_in_budget(problem, made, options.budget_bytes);
  const auto is_good = [&] {
    return best.timeline.total_ns <= made.estimated_ns * (1 + kCheapPart);
  };
  const auto consider = [&](FittedPlan other) {
    const bool fits = other.plan.arena_bytes <= options.budget_bytes;
    if (fits && other.timeline.total_ns >= least_ns &&
        other.timeline.total_ns < best.timeline.total_ns)
      best = std::move(other);
    return fits;
  };
  const bool fits = !is_good() && consider(lay_out(problem, made, {options.budget_bytes, 0}));
  if (!is_good() && !fits && options.nodes > 0) consider(lay_out(problem, made, options));
  for (const double room : kRooms) {
    if (is_good()) break;
    ReplayOptions less = replay;
    less.budget_bytes -= static_cast<std::int64_t>(
        room * static_cast<double>(options.budget_bytes - problem.pinned_bytes));
    const ReplayResult roomy = plan::replay(problem, decisions, less);
    if (roomy.feasible) consider(arrange_in_budget(problem, roomy, options.budget_bytes));
  }
  return best;
}

}  // namespace plimsoll::plan
