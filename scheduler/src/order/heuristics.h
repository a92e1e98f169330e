// SPDX-License-Identifier: Apache-2.0
// Orders that cost next to nothing: where every search starts.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/order/problem.h"

namespace plimsoll::order {

// The ready operator with the least (net, rise, index) first. O(size log size).
std::vector<std::int32_t> greedy_order(const Problem& problem);

// Depth first from the last operators to what they need, so that what belongs together runs
// together. O(size).
std::vector<std::int32_t> depth_first_order(const Problem& problem);

// Reverse post-order of a depth-first walk from the first operators. O(size).
std::vector<std::int32_t> reverse_post_order(const Problem& problem);

}  // namespace plimsoll::order
