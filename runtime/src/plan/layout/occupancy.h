// SPDX-License-Identifier: Apache-2.0
// Which addresses are taken over a stretch of time, without an interference graph.
//
// Nouns: AddressSet, Occupancy.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/base/interval.h"

namespace plimsoll::plan::layout_detail {

// Disjoint address intervals in ascending order; touching ones are merged, so a dense layout needs
// few.
class AddressSet {
 public:
  void add(std::int64_t begin, std::int64_t end);
  const std::vector<Interval>& intervals() const { return intervals_; }
  bool empty() const { return intervals_.empty(); }

 private:
  std::vector<Interval> intervals_;
};

// A segment tree over sections. Each node keeps the addresses taken throughout it (`cover`) and
// those taken somewhere in it (`any`):
//
//     [0........8)   a query for [1,6) reads `any` of the nodes that tile it
//     [0..4)[4..8)   and `cover` of the nodes above those
//
// O(log sections) sets an operation. Single owner.
class Occupancy {
 public:
  explicit Occupancy(std::int32_t sections);
  void add(std::int32_t first, std::int32_t last, Interval addresses);
  // Appends the sets that hold all addresses taken in [first, last).
  void collect(std::int32_t first, std::int32_t last, std::vector<const AddressSet*>& sets) const;

 private:
  struct Node {
    AddressSet cover;
    AddressSet any;
  };
  void add_below(std::size_t node, std::int32_t node_first, std::int32_t node_last,
                 std::int32_t first, std::int32_t last, Interval addresses);
  void collect_below(std::size_t node, std::int32_t node_first, std::int32_t node_last,
                     std::int32_t first, std::int32_t last,
                     std::vector<const AddressSet*>& sets) const;

  std::int32_t width_ = 1;
  std::vector<Node> nodes_;
};

}  // namespace plimsoll::plan::layout_detail
