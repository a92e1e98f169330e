// SPDX-License-Identifier: Apache-2.0
// The least traffic of a small sequence, by looking at everything. Shares nothing with the planner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plimsoll/plan/access_sequence.h"

namespace plimsoll::plan::testing {

// One choice: away from after position `after` (in the storage's own life) until before `until`.
struct SmallGap {
  SwapStorageId storage;
  std::int64_t after = 0;
  std::int64_t until = 0;
  bool returns = false;
};

// Every gap that holds an operator, of every movable storage.
std::vector<SmallGap> list_gaps(const AccessSequence& sequence);

// Least out + in bytes over all subsets of gaps; nothing where none fits. Cost: O(2^gaps).
std::optional<std::int64_t> least_over_subsets(const AccessSequence& sequence,
                                               std::int64_t budget_bytes);

// Least out + in bytes of any cyclic play in which every persistent storage is, before and after
// every operator, on the device, on the host or on both, and moves at will between operators: the
// proof that nothing but gaps is worth choosing. Persistent storages only.
// Cost: O(operators x 9^storages).
std::optional<std::int64_t> least_over_plays(const AccessSequence& sequence,
                                             std::int64_t budget_bytes);

}  // namespace plimsoll::plan::testing
