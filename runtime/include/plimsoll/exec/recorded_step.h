// SPDX-License-Identifier: Apache-2.0
// What one step allocated, in order, and how long each block lived.
//
// Nouns: AllocationKey, RecordedBlock, RecordedStep.
//
// The clock of a step counts its allocations: block i is born at time i, and a free that comes
// after d allocations happens at time d. A block that is freed in the following step has a death
// above the step's length n; it then lives in two pieces of the repeating step:
//
//     time    0    d-n          i          n
//             [####)            [##########)      born at i, death d > n
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll::exec {

// Names what asks for memory (an operator, a place in a program); 0 means unknown.
using AllocationKey = std::uint64_t;

inline constexpr std::int64_t kNeverFreed = std::numeric_limits<std::int64_t>::max();

struct RecordedBlock {
  AllocationKey key = 0;
  std::int64_t bytes = 0;  // as requested, positive
  std::int64_t death = kNeverFreed;
  friend bool operator==(const RecordedBlock&, const RecordedBlock&) = default;
};

// Blocks in the order of their allocation.
struct RecordedStep {
  std::vector<RecordedBlock> blocks;

  std::int64_t length() const { return static_cast<std::int64_t>(blocks.size()); }
  // True where the block outlives a whole step (or was not seen to die): it gets no planned place.
  bool escapes(std::size_t index) const;
  // Forgets deaths in the following step, for where that was a step of another kind.
  void forget_late_deaths();
};

// True where both have the same keys in the same order and no size differs by more than a factor
// of two: the same program with other shapes. Cost: O(n).
bool same_structure(const RecordedStep& a, const RecordedStep& b);

// True where the sizes, rounded up to `alignment_bytes`, are the same too.
bool same_sizes(const RecordedStep& a, const RecordedStep& b, std::int64_t alignment_bytes);

}  // namespace plimsoll::exec
