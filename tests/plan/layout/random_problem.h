// SPDX-License-Identifier: Apache-2.0
// Random layout problems and the simplest complete solver, for comparison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "plimsoll/plan/layout.h"

namespace plimsoll::plan::testing {

struct RandomShape {
  int most_buffers = 7;
  int most_time = 8;
  int most_size = 6;
  bool with_alignment = false;
  bool with_gaps = false;
  bool with_windows = false;
  bool with_fixed = false;
  bool with_reserved = false;
};

inline LayoutProblem random_problem(std::uint64_t seed, const RandomShape& shape) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  LayoutProblem problem;
  const std::int64_t n = 1 + below(shape.most_buffers);
  for (std::int64_t i = 0; i < n; ++i) {
    LayoutBuffer b;
    b.lifetime.begin = below(shape.most_time);
    b.lifetime.end = b.lifetime.begin + 1 + below(shape.most_time - 2);
    b.size_bytes = 1 + below(shape.most_size);
    if (shape.with_alignment) b.alignment_bytes = 1 + below(3);
    if ((shape.with_gaps || shape.with_windows) && b.lifetime.length() >= 3 && below(2) == 0) {
      const std::int64_t begin = b.lifetime.begin + 1;
      LayoutGap gap{{begin, begin + 1 + below(static_cast<int>(b.lifetime.length()) - 2)}, {}};
      if (shape.with_windows && b.size_bytes > 1) {
        const std::int64_t low = below(static_cast<int>(b.size_bytes));
        gap.kept = {low, low + 1};
      }
      b.gaps.push_back(gap);
    }
    if (shape.with_fixed && below(4) == 0) b.fixed_offset_bytes = below(6) * b.alignment_bytes;
    problem.buffers.push_back(b);
  }
  if (shape.with_reserved) {
    const std::int64_t begin = below(shape.most_time);
    const std::int64_t low = below(6);
    problem.reserved.push_back({0, {begin, begin + 2}, {low, low + 1 + below(3)}});
  }
  return problem;
}

// A rectangle of `time` x `bytes` cut into `count` pieces at random: a layout without any waste
// exists, and greedy placement seldom finds it.
inline LayoutProblem perfect_problem(std::uint64_t seed, std::size_t count, std::int64_t time,
                                     std::int64_t bytes) {
  std::mt19937_64 random(seed);
  LayoutProblem problem;
  problem.buffers.resize(1);
  problem.buffers[0].lifetime = {0, time};
  problem.buffers[0].size_bytes = bytes;
  while (problem.buffers.size() < count) {
    LayoutBuffer& piece = problem.buffers[random() % problem.buffers.size()];
    LayoutBuffer rest = piece;
    if (random() % 2 == 0 && piece.lifetime.length() > 1) {
      const auto cut = piece.lifetime.begin + 1 +
                       static_cast<std::int64_t>(
                           random() % static_cast<std::uint64_t>(piece.lifetime.length() - 1));
      piece.lifetime.end = rest.lifetime.begin = cut;
    } else if (piece.size_bytes > 1) {
      const auto cut = 1 + static_cast<std::int64_t>(
                               random() % static_cast<std::uint64_t>(piece.size_bytes - 1));
      rest.size_bytes -= cut;
      piece.size_bytes = cut;
    } else {
      continue;
    }
    problem.buffers.push_back(rest);
  }
  std::shuffle(problem.buffers.begin(), problem.buffers.end(), random);
  return problem;
}

// Whether two buffers share a moment in which both occupy something.
inline bool meet(const LayoutBuffer& a, const LayoutBuffer& b) {
  const auto is_live = [](const LayoutBuffer& x, std::int64_t t) {
    if (!x.lifetime.contains(t)) return false;
    return std::none_of(x.gaps.begin(), x.gaps.end(),
                        [&](const LayoutGap& g) { return g.time.contains(t); });
  };
  for (std::int64_t t = std::max(a.lifetime.begin, b.lifetime.begin);
       t < std::min(a.lifetime.end, b.lifetime.end); ++t) {
    if (is_live(a, t) && is_live(b, t)) return true;
  }
  return false;
}

// The least height, by all orders of stacking: in order of offsets, every buffer of a layout that
// is pushed down stands on the floor, on another one, or at the next multiple of its alignment
// above. Reserved ranges are fixed buffers. No windows. -1 where fixed ones contradict each other.
class BruteForce {
 public:
  explicit BruteForce(const LayoutProblem& problem) : buffers_(problem.buffers) {
    for (const ReservedRange& r : problem.reserved) {
      LayoutBuffer b;
      b.lifetime = r.time;
      b.size_bytes = r.addresses.length();
      b.fixed_offset_bytes = r.addresses.begin;
      buffers_.push_back(b);
    }
    offsets_.resize(buffers_.size(), -1);
  }

  std::int64_t least_height() {
    place(0, 0);
    return best_ == kNone ? -1 : best_;
  }

 private:
  static constexpr std::int64_t kNone = 1'000'000'000;

  void place(std::size_t placed, std::int64_t height) {
    if (height >= best_) return;
    if (placed == buffers_.size()) {
      best_ = height;
      return;
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (offsets_[i] >= 0) continue;
      const LayoutBuffer& b = buffers_[i];
      std::int64_t at = 0;
      for (std::size_t j = 0; j < buffers_.size(); ++j) {
        if (offsets_[j] >= 0 && meet(b, buffers_[j]))
          at = std::max(at, offsets_[j] + buffers_[j].size_bytes);
      }
      at = (at + b.alignment_bytes - 1) / b.alignment_bytes * b.alignment_bytes;
      if (b.fixed_offset_bytes != kNoOffset) {
        if (at > b.fixed_offset_bytes) continue;
        at = b.fixed_offset_bytes;
      }
      offsets_[i] = at;
      place(placed + 1, std::max(height, at + b.size_bytes));
      offsets_[i] = -1;
    }
  }

  std::vector<LayoutBuffer> buffers_;
  std::vector<std::int64_t> offsets_;
  std::int64_t best_ = kNone;
};

}  // namespace plimsoll::plan::testing
