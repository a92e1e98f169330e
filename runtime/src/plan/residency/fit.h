// SPDX-License-Identifier: Apache-2.0
// From decisions to addresses inside a budget, the holes between blocks included.
//
// Nouns: FitOptions, FittedPlan.
//
//     live bytes    ____/--\_____/---\___     where holes push the arena over the budget, the same
//     reserve            __                  decisions are replayed with that much less to live in,
//                        there and only there
#pragma once

#include <cstdint>

#include "plimsoll/plan/plan.h"
#include "plimsoll/plan/simulate.h"

#include "replay.h"

namespace plimsoll::plan {

struct FitOptions {
  std::int64_t budget_bytes = 0;  // for the arena
  std::int64_t nodes = 0;         // of the layout engine's search, where replays alone do not fit
};

struct FittedPlan {
  Plan plan;  // with addresses and waits
  Timeline timeline;
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
  std::int64_t recomputed_ops = 0;
};

// Adds addresses and waits, and simulates. Cost: that of place_instances.
FittedPlan lay_out(const Problem& problem, const ReplayResult& made, const FitOptions& options);

// The plan of these decisions, fitted into the budget where that is found to work; else the one
// whose arena is smaller, with or without a reserve. Never faster than `least_ns`. Deterministic.
// Cost: up to eight replays and layouts.
FittedPlan fit_plan(const Problem& problem, const Decisions& decisions, const ReplayOptions& replay,
                    const FitOptions& options, double least_ns);

}  // namespace plimsoll::plan
