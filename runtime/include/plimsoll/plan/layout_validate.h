// SPDX-License-Identifier: Apache-2.0
// Says whether a layout is right, independently of every planner.
//
// Noun: LayoutViolation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/plan/layout.h"

namespace plimsoll::plan {

// The first thing that is wrong with a layout. `first` and `second` are buffer indices; `second` is
// -1 where only one buffer is concerned, and counts on from the buffers for a reserved range.
struct LayoutViolation {
  enum class Kind : std::uint8_t {
    kCount,      // not one offset a buffer
    kNegative,   // an offset below zero, or a top that leaves 64 bits
    kAlignment,  // an offset that is no multiple of the alignment
    kFixed,      // not at the fixed offset
    kCapacity,   // a top above the arena's capacity
    kOverlap,    // two live buffers share a byte
    kReserved,   // a live buffer in a reserved range
  };
  Kind kind = Kind::kCount;
  std::int64_t first = -1;
  std::int64_t second = -1;
  std::string message;
};

// The simple form: every pair, every pair of pieces. O(n^2). Nothing where the layout is right.
std::optional<LayoutViolation> validate_layout(const LayoutProblem& problem,
                                               const std::vector<std::int64_t>& offsets_bytes);

// The same verdict by a sweep over time with an ordered map of live address ranges. O(n log n).
// Where both find an overlap they may name different pairs.
std::optional<LayoutViolation> validate_layout_sweep(
    const LayoutProblem& problem, const std::vector<std::int64_t>& offsets_bytes);

}  // namespace plimsoll::plan
