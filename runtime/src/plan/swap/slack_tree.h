// SPDX-License-Identifier: Apache-2.0
// A row of byte counts with fast addition over a range and minimum over a range.
//
// Noun: slack (bytes still free in a row; negative while a row is not covered).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll::plan::detail {

// Segment tree whose inner nodes hold the minimum below them plus what was added to all of it, so
// that nothing is ever pushed down. Every range is half-open within [0, size).
// Cost: O(log size) a call.
class SlackTree {
 public:
  explicit SlackTree(const std::vector<std::int64_t>& values) {
    while (leaves_ < values.size()) leaves_ *= 2;
    least_.assign(2 * leaves_, kFar);
    added_.assign(2 * leaves_, 0);
    std::ranges::copy(values, least_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_ - 1; node >= 1; --node) refresh(node);
  }

  void add(std::int64_t begin, std::int64_t end, std::int64_t value) {
    std::size_t left = static_cast<std::size_t>(begin) + leaves_;
    std::size_t right = static_cast<std::size_t>(end) + leaves_;
    const std::size_t first = left;
    const std::size_t last = right - 1;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) apply(left++, value);
      if (right % 2 == 1) apply(--right, value);
    }
    for (std::size_t node = first / 2; node >= 1; node /= 2) refresh(node);
    for (std::size_t node = last / 2; node >= 1; node /= 2) refresh(node);
  }

  std::int64_t min(std::int64_t begin, std::int64_t end) const {
    std::size_t left = static_cast<std::size_t>(begin) + leaves_;
    std::size_t right = static_cast<std::size_t>(end - 1) + leaves_;
    std::int64_t from_left = least_[left];
    std::int64_t from_right = least_[right];
    while (left / 2 != right / 2) {
      if (left % 2 == 0) from_left = std::min(from_left, least_[left + 1]);
      if (right % 2 == 1) from_right = std::min(from_right, least_[right - 1]);
      left /= 2;
      right /= 2;
      from_left += added_[left];
      from_right += added_[right];
    }
    std::int64_t result = std::min(from_left, from_right);
    for (std::size_t node = left / 2; node >= 1; node /= 2) result += added_[node];
    return result;
  }

  std::int64_t min() const { return least_[1]; }

  // The first position that holds the minimum of all.
  std::int64_t argmin() const {
    std::size_t node = 1;
    while (node < leaves_)
      node = least_[2 * node] <= least_[2 * node + 1] ? 2 * node : 2 * node + 1;
    return static_cast<std::int64_t>(node - leaves_);
  }

 private:
  static constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;

  void apply(std::size_t node, std::int64_t value) {
    least_[node] += value;
    if (node < leaves_) added_[node] += value;
  }
  void refresh(std::size_t node) {
    least_[node] = std::min(least_[2 * node], least_[2 * node + 1]) + added_[node];
  }

  std::size_t leaves_ = 1;
  std::vector<std::int64_t> least_;
  std::vector<std::int64_t> added_;
};

}  // namespace plimsoll::plan::detail
