// SPDX-License-Identifier: Apache-2.0
// Bytes over positions, of which stretches are raised and asked for their maximum.
//
// Noun: Curve.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll::plan {

// A segment tree walked from the leaves, whose nodes keep what was added to all of their leaves.
// Cost: O(log positions) each.
class Curve {
 public:
  explicit Curve(const std::vector<std::int64_t>& values) {
    while (leaves_ < values.size() + 2) leaves_ *= 2;  // one more at each side, never read
    max_.assign(2 * leaves_, kLeast);
    add_.assign(leaves_, 0);
    std::copy(values.begin(), values.end(),
              max_.begin() + static_cast<std::ptrdiff_t>(leaves_) + 1);
    for (std::size_t i = leaves_; i-- > 1;) max_[i] = std::max(max_[2 * i], max_[2 * i + 1]);
  }
  void add(std::size_t begin, std::size_t end, std::int64_t value) {
    if (begin >= end) return;
    std::size_t left = leaves_ + begin;  // the leaf before the first
    std::size_t right = leaves_ + end + 1;
    while ((left ^ right) != 1) {
      if ((left & 1) == 0) add_to(left ^ 1, value);
      if ((right & 1) != 0) add_to(right ^ 1, value);
      left /= 2;
      right /= 2;
      update(left);
      update(right);
    }
    while (left > 1) update(left /= 2);
  }
  std::int64_t max(std::size_t begin, std::size_t end) const {
    if (begin >= end) return kLeast;
    std::int64_t in_left = kLeast;
    std::int64_t in_right = kLeast;
    std::size_t left = leaves_ + begin;
    std::size_t right = leaves_ + end + 1;
    while ((left ^ right) != 1) {
      if ((left & 1) == 0) in_left = std::max(in_left, max_[left ^ 1]);
      if ((right & 1) != 0) in_right = std::max(in_right, max_[right ^ 1]);
      left /= 2;
      right /= 2;
      in_left += add_[left];
      in_right += add_[right];
    }
    std::int64_t result = std::max(in_left, in_right);
    while (left > 1) result += add_[left /= 2];
    return result;
  }
  // The last position below `end` whose value is above `bound`; -1: none.
  std::int64_t last_above(std::size_t end, std::int64_t bound) const {
    // Right to left over the subtrees that cover [0, end), the nearest first.
    std::size_t node = leaves_ + end + 1;
    while (node > 1) {
      const bool has_left = (node & 1) != 0;
      if (has_left && max_[node ^ 1] + above(node ^ 1) > bound) return last_in(node ^ 1, bound);
      node /= 2;
    }
    return -1;
  }

 private:
  static constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min() / 2;
  void add_to(std::size_t node, std::int64_t value) {
    max_[node] += value;
    if (node < leaves_) add_[node] += value;
  }
  void update(std::size_t node) {
    max_[node] = std::max(max_[2 * node], max_[2 * node + 1]) + add_[node];
  }
  // What was added to all of the leaves of the nodes above it.
  std::int64_t above(std::size_t node) const {
    std::int64_t sum = 0;
    while (node > 1) sum += add_[node /= 2];
    return sum;
  }
  std::int64_t last_in(std::size_t node, std::int64_t bound) const {
    std::int64_t sum = above(node);
    while (node < leaves_) {
      sum += add_[node];
      node = 2 * node + 1;
      if (max_[node] + sum <= bound) --node;
    }
    return static_cast<std::int64_t>(node - leaves_) - 1;
  }
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> max_;  // by node, what was added above it not counted
  std::vector<std::int64_t> add_;  // by inner node
};

}  // namespace plimsoll::plan
