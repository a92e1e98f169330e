// SPDX-License-Identifier: Apache-2.0
// Local search over placement orders around the peak ("squeaky wheel").
//
// Noun: LocalSearch.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout/greedy.h"
#include "plan/layout/instance.h"

namespace plimsoll::plan::layout_detail {

struct LocalLimits {
  std::int64_t enough = 0;  // stop at this height
  std::int64_t moves = 0;   // repackings
  std::int64_t work = 0;    // interval visits, all repackings together
  std::uint64_t seed = 1;
};

// Repacks again and again, each time with the items that stood highest, and a few of those they
// stood on, moved forward in the order. `best` is improved in place and never made worse.
// Returns the repackings made. Source: Joslin and Clements, "Squeaky Wheel Optimization", JAIR
// 1999.
std::int64_t improve_order(const Instance& instance, GreedyBest& best, const LocalLimits& limits,
                           const StopCheck& stop);

}  // namespace plimsoll::plan::layout_detail
