// SPDX-License-Identifier: Apache-2.0
// Half-open intervals, the only convention in this project, in time and in address space.
//
// Noun: Interval.
//
//     begin            end
//       [###############)
#pragma once

#include <algorithm>
#include <cstdint>

namespace plimsoll {

// [begin, end); empty where end <= begin.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t length() const { return end > begin ? end - begin : 0; }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool contains(std::int64_t point) const { return begin <= point && point < end; }
  constexpr bool contains(const Interval& other) const {
    return begin <= other.begin && other.end <= end;
  }
  constexpr bool overlaps(const Interval& other) const {
    return begin < other.end && other.begin < end && !empty() && !other.empty();
  }
  friend constexpr bool operator==(const Interval&, const Interval&) = default;
};

constexpr Interval intersect(const Interval& a, const Interval& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace plimsoll
