// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/occupancy.h"

#include <algorithm>
#include <bit>

namespace plimsoll::plan::layout_detail {

void AddressSet::add(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  // The run of intervals that touch [begin, end) becomes one.
  auto from = std::lower_bound(intervals_.begin(), intervals_.end(), begin,
                               [](const Interval& i, std::int64_t at) { return i.end < at; });
  auto to = from;
  while (to != intervals_.end() && to->begin <= end) {
    begin = std::min(begin, to->begin);
    end = std::max(end, to->end);
    ++to;
  }
  if (from == to) {
    intervals_.insert(from, {begin, end});
    return;
  }
  *from = {begin, end};
  intervals_.erase(from + 1, to);
}

Occupancy::Occupancy(std::int32_t sections)
    : width_(static_cast<std::int32_t>(
          std::bit_ceil(static_cast<std::uint32_t>(std::max(sections, 1))))),
      nodes_(2 * static_cast<std::size_t>(width_)) {}

void Occupancy::add(std::int32_t first, std::int32_t last, Interval addresses) {
  if (first < last) add_below(1, 0, width_, first, last, addresses);
}

void Occupancy::collect(std::int32_t first, std::int32_t last,
                        std::vector<const AddressSet*>& sets) const {
  if (first < last) collect_below(1, 0, width_, first, last, sets);
}

void Occupancy::add_below(std::size_t node, std::int32_t node_first, std::int32_t node_last,
                          std::int32_t first, std::int32_t last, Interval addresses) {
  nodes_[node].any.add(addresses.begin, addresses.end);
  if (first <= node_first && node_last <= last) {
    nodes_[node].cover.add(addresses.begin, addresses.end);
    return;
  }
  const std::int32_t middle = node_first + (node_last - node_first) / 2;
  if (first < middle) add_below(2 * node, node_first, middle, first, last, addresses);
  if (last > middle) add_below(2 * node + 1, middle, node_last, first, last, addresses);
}

void Occupancy::collect_below(std::size_t node, std::int32_t node_first, std::int32_t node_last,
                              std::int32_t first, std::int32_t last,
                              std::vector<const AddressSet*>& sets) const {
  const Node& here = nodes_[node];
  if (here.any.empty()) return;
  if (first <= node_first && node_last <= last) {
    sets.push_back(&here.any);
    return;
  }
  if (!here.cover.empty()) sets.push_back(&here.cover);
  const std::int32_t middle = node_first + (node_last - node_first) / 2;
  if (first < middle) collect_below(2 * node, node_first, middle, first, last, sets);
  if (last > middle) collect_below(2 * node + 1, middle, node_last, first, last, sets);
}

}  // namespace plimsoll::plan::layout_detail
