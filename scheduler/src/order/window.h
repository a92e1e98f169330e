// SPDX-License-Identifier: Apache-2.0
// A stretch of an order as a problem of its own, and the states that every order passes.
//
// Noun: Timeline.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plimsoll/order/problem.h"

namespace plimsoll::order {

// Where things stand in one order; positions count from 0.
struct Timeline {
  Timeline(const Problem& problem, std::vector<std::int32_t> order);

  std::vector<std::int32_t> order;
  Profile levels;
  std::vector<std::int32_t> position;     // per operator
  std::vector<std::int32_t> first_birth;  // per storage; -1 live from the start
  std::vector<std::int32_t> last_reader;  // per storage; -1 none, number of operators if kept
};

// The operators at positions [begin, end) as a problem: operator i is the one at begin + i, its
// levels are those of the whole. What lives across is part of the base. O(size of the stretch log).
Problem window_problem(const Problem& problem, const Timeline& timeline, std::int32_t begin,
                       std::int32_t end);

// Positions p such that every order runs the same operators before p: those right behind an
// operator that is comparable with all others. First 0, last the number of operators. O(size).
std::vector<std::int32_t> separators(const Problem& problem, const Timeline& timeline);

}  // namespace plimsoll::order
