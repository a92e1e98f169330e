// SPDX-License-Identifier: Apache-2.0
// What the search has learnt about states: the least peak that completing each could have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state.h"

namespace plimsoll::order {

// A hash table of bounds with a fixed limit on its memory. Below the limit nothing is forgotten;
// at the limit a new state takes the place of one in its bucket. Single owner; deterministic.
class BoundTable {
 public:
  explicit BoundTable(std::size_t limit_bytes);

  // The bound known for `key`, or the smallest 64-bit number.
  std::int64_t find(const StateKey& key) const;
  // Records that no completion of `key` has a peak below `bound`; keeps the larger.
  void raise(const StateKey& key, std::int64_t bound);
  std::size_t size() const { return used_; }

 private:
  struct Entry {
    StateKey key;
    std::int64_t bound = 0;
  };
  void grow();

  std::vector<Entry> entries_;
  std::size_t used_ = 0;
  std::size_t most_entries_;
};

}  // namespace plimsoll::order
