// SPDX-License-Identifier: Apache-2.0
// Dynamic programming over executed sets, one operator a step: exact under a budget, or a beam.
//
// Nouns: LevelSearch, LevelResult.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/order/problem.h"

#include "state.h"
#include "stop.h"

namespace plimsoll::order {

struct LevelResult {
  // kFull: some step held more states than allowed. kNone: no order within the budget.
  enum class Outcome : std::uint8_t { kFound, kNone, kFull, kStopped };
  Outcome outcome = Outcome::kStopped;
  std::vector<std::int32_t> order;
  std::int64_t states = 0;
};

struct LevelOptions {
  std::int64_t budget = 0;       // states above it are dropped
  std::int64_t most_states = 0;  // per step
  bool keep_best = false;        // beyond that many keep the best (a beam) instead of giving up
};

// All states after i operators, each with the least peak that leads to it, for i = 1, 2, ...
// O(steps * states * ready * degree). Memory: 8 bytes a state and step, two bitsets a state for the
// present steps. Deterministic.
// Source: Ahn et al., "Ordering Chaos: Memory-Aware Scheduling of Irregularly Wired Neural Networks
// for Edge Devices" (MLSys 2020), section 3.1. Its signature, the set of ready operators, stands
// for the executed set, which is what is hashed here.
LevelResult search_levels(const Problem& problem, const LevelOptions& options, Stopper& stopper);

}  // namespace plimsoll::order
