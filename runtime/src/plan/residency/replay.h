// SPDX-License-Identifier: Apache-2.0
// Turns decisions into a plan's steps inside a budget of live bytes.
//
// Nouns: ReplayOptions, ReplayResult.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "draft.h"
#include "problem.h"

namespace plimsoll::plan {

// Whom to evict where the decisions alone do not keep the budget: the smallest score goes first.
enum class VictimRule : std::uint8_t {
  kNextUse,  // cost to restore / (bytes x time to the next use)
  kDtr,      // cost to rebuild with missing neighbours / (bytes x time since the last use)
};

struct ReplayOptions {
  std::int64_t budget_bytes = 0;
  bool may_recompute = true;
  bool may_offload = true;
  bool keep_rebuilt = true;    // what was rebuilt on the way stays for its own next use
  bool free_after_use = true;  // off: everything stays to the end of the step
  VictimRule rule = VictimRule::kNextUse;
  std::int64_t recompute_limit = 0;  // ops run again before it gives up; 0: 40 x ops + 1000
  double give_up_ns = std::numeric_limits<double>::infinity();  // from here on of no interest
};

struct ReplayResult {
  bool feasible = false;
  Draft draft;
  Decisions realized;  // what became of every gap, evictions that no decision foresaw included
  double estimated_ns = 0;
  std::int64_t recomputed_ops = 0;
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
};

// Cost: O(steps + touches), and O(resident storages) for every eviction no decision foresaw.
// Deterministic. A plan that comes back feasible never holds more than the budget.
ReplayResult replay(const Problem& problem, const Decisions& decisions,
                    const ReplayOptions& options);

// Adds up what a draft moves and runs again.
void count_moves(const Problem& problem, const Draft& draft, ReplayResult& result);

}  // namespace plimsoll::plan
