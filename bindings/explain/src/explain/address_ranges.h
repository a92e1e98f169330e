// SPDX-License-Identifier: Apache-2.0
// Noun: AddressRanges, the segments of a device while its trace is walked either way.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "plimsoll/base/interval.h"

namespace plimsoll::explain {

// Disjoint ranges. What overlaps or is missing (a trace may be cut anywhere) is left as it is.
class AddressRanges {
 public:
  // Adds a range, joined to its neighbours where `joins` (parts of an expandable segment).
  void add(Interval range, bool joins) {
    if (range.empty() || overlaps(range)) return;
    total_ += range.length();
    if (joins) {
      const auto above = ends_.find(range.end);
      if (above != ends_.end()) {
        range.end = above->second;
        ends_.erase(above);
      }
      auto below = ends_.lower_bound(range.begin);
      if (below != ends_.begin() && std::prev(below)->second == range.begin) {
        std::prev(below)->second = range.end;
        return;
      }
    }
    ends_[range.begin] = range.end;
  }
  // Takes a range out of the ranges that hold it.
  void remove(Interval range) {
    if (range.empty()) return;
    auto piece = ends_.upper_bound(range.begin);
    if (piece != ends_.begin()) --piece;
    while (piece != ends_.end() && piece->first < range.end) {
      const Interval held{piece->first, piece->second};
      if (!held.overlaps(range)) {
        ++piece;
        continue;
      }
      piece = ends_.erase(piece);
      if (held.begin < range.begin) ends_[held.begin] = range.begin;
      if (range.end < held.end) ends_[range.end] = held.end;
      total_ -= intersect(held, range).length();
    }
  }
  std::int64_t total_bytes() const { return total_; }
  const std::map<std::int64_t, std::int64_t>& ends() const { return ends_; }  // by begin

 private:
  bool overlaps(Interval range) const {
    const auto above = ends_.lower_bound(range.begin);
    if (above != ends_.end() && above->first < range.end) return true;
    return above != ends_.begin() && std::prev(above)->second > range.begin;
  }
  std::map<std::int64_t, std::int64_t> ends_;
  std::int64_t total_ = 0;
};

}  // namespace plimsoll::explain
