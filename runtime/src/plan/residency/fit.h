// SPDX-License-Identifier: Apache-2.0
// From decisions to addresses inside a budget, the holes between blocks included.
//
// Nouns: FitOptions, FittedPlan.
#pragma once

#include <cstdint>

#include "plimsoll/plan/plan.h"
#include "plimsoll/plan/simulate.h"

#include "replay.h"

namespace plimsoll::plan {

struct FitOptions {
  std::int64_t budget_bytes = 0;  // for the arena
  std::int64_t nodes = 0;         // of the layout engine's search
  bool may_move = true;           // within the arena; else it may become larger than the budget
};

struct FittedPlan {
  Plan plan;  // with addresses and waits
  Timeline timeline;
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
  std::int64_t recomputed_ops = 0;
};

// Adds addresses and waits, and simulates; nothing moves within the arena, which may be larger than
// the budget. Cost: that of place_instances.
FittedPlan lay_out(const Problem& problem, const ReplayResult& made, const FitOptions& options);

// The same with moves wherever holes would push the arena over the budget (arrange.h), so that live
// bytes within the budget are all that it takes.
FittedPlan arrange_in_budget(const Problem& problem, const ReplayResult& made,
                             std::int64_t budget_bytes);

// The fastest of both, and of the first with room left for holes, that keeps the budget; no more is
// tried than is needed to come close to the estimate. Never faster than `least_ns`. Deterministic.
// Cost: up to four replays and six layouts.
FittedPlan fit_plan(const Problem& problem, const Decisions& decisions, const ReplayOptions& replay,
                    const FitOptions& options, double least_ns);

}  // namespace plimsoll::plan
