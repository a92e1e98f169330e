// SPDX-License-Identifier: Apache-2.0
// The greedy suite: an order of the items, each put into the best or the first hole.
//
// Nouns: GreedyOrder, GreedyFit.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/layout/instance.h"

namespace plimsoll::plan::layout_detail {

enum class GreedyOrder : std::uint8_t {
  kArea,         // size x sections, falling
  kSize,         // size, then length
  kLength,       // sections, then size
  kBegin,        // first section, then size: with best fit, what an online allocator does
  kEnd,          // last section falling, then size: the same, backwards in time
  kBusiestSize,  // load of its busiest section, then size
  kBusiestArea,  // load of its busiest section, then area
  kRootArea,     // size^2 x sections, falling
};
inline constexpr std::array<GreedyOrder, 8> kGreedyOrders = {
    GreedyOrder::kSize,        GreedyOrder::kArea,    GreedyOrder::kLength,
    GreedyOrder::kBegin,       GreedyOrder::kEnd,     GreedyOrder::kBusiestSize,
    GreedyOrder::kBusiestArea, GreedyOrder::kRootArea};

enum class GreedyFit : std::uint8_t { kFirst, kBest };

// The items in the given order, ties by index; fixed items first.
std::vector<std::int32_t> greedy_order(const Instance& instance, GreedyOrder order);

// Places the items in turn. Fixed items, which must not contradict one another, have to come first.
// A hint is taken where it is free. `work` grows by the intervals looked at and a constant an item.
// O(log sections) sets an item.
Offsets place_greedily(const Instance& instance, const std::vector<std::int32_t>& order,
                       GreedyFit fit, std::int64_t& work);

struct GreedyBest {
  Offsets offsets;
  std::int64_t height = 0;
  std::vector<std::int32_t> order;  // the one that gave it
  GreedyFit fit = GreedyFit::kFirst;
};
// Runs orders x fits until one reaches `enough`, `work_limit` is used up, or `stop` says so; at
// least one run is always made. Ties: the first.
GreedyBest greedy_suite(const Instance& instance, std::int64_t enough, std::int64_t work_limit,
                        const StopCheck& stop);

}  // namespace plimsoll::plan::layout_detail
