// SPDX-License-Identifier: Apache-2.0
// Breadth-first dynamic programming over executed sets.
//
// Nouns: LevelOptions, LevelResult.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plimsoll/order/problem.h"

#include "stop.h"

namespace plimsoll::order {

struct LevelOptions {
  std::int64_t budget = 0;           // states whose peak is higher are dropped
  std::int64_t most_states = 1;      // per number of executed operators
  std::size_t most_bytes = 1 << 30;  // for all states and the way back from them
  bool keep_best = false;            // too many states: true keeps those of the least peak, a beam
};

struct LevelResult {
  enum class Outcome : std::uint8_t {
    kFound,    // an order; of least peak unless a beam dropped states
    kNone,     // no order within the budget; of a beam: none among the states kept
    kFull,     // too many states at once
    kMemory,   // too many bytes
    kStopped,  // the stopper said so
  };
  Outcome outcome = Outcome::kStopped;
  std::vector<std::int32_t> order;  // kFound
  std::int64_t states = 0;
};

// Runs through all sets of 0, 1, 2, ... executed operators, each with the least peak that reaches
// it. A set is told by its ready operators (its zero-indegree set), which no other set has; both
// are kept bit by bit, over the words in which the states of one size differ at all. No set is
// taken for another: hashes only say where to look. Deterministic.
// Source: Ahn et al., "Ordering Chaos: Memory-Aware Scheduling of Irregularly Wired Neural Networks
// for Edge Devices", MLSys 2020, section 3.1.
LevelResult search_levels(const Problem& problem, const LevelOptions& options, Stopper& stopper);

}  // namespace plimsoll::order
