// SPDX-License-Identifier: Apache-2.0
#include "bound_table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace plimsoll::order {
namespace {
constexpr std::size_t kBucket = 8;
constexpr std::size_t kFirstEntries = 1 << 10;
}  // namespace

BoundTable::BoundTable(std::size_t limit_bytes)
    : most_entries_(std::bit_floor(std::max(limit_bytes / sizeof(Entry), kFirstEntries))) {}

std::int64_t BoundTable::find(const StateKey& key) const {
  if (!entries_.empty()) {
    const std::size_t mask = entries_.size() - 1;
    for (std::size_t i = 0; i < kBucket; ++i) {
      const Entry& entry = entries_[(key.first + i) & mask];
      if (entry.key == key) return entry.bound;
    }
  }
  return std::numeric_limits<std::int64_t>::min();
}

void BoundTable::raise(const StateKey& key, std::int64_t bound) {
  if (entries_.empty() || (used_ * 2 >= entries_.size() && entries_.size() < most_entries_)) grow();
  for (;;) {
    const std::size_t mask = entries_.size() - 1;
    for (std::size_t i = 0; i < kBucket; ++i) {
      Entry& entry = entries_[(key.first + i) & mask];
      if (entry.key == key) {
        entry.bound = std::max(entry.bound, bound);
        return;
      }
      if (entry.key == StateKey{}) {
        entry = {key, bound};
        ++used_;
        return;
      }
    }
    if (entries_.size() >= most_entries_) break;
    grow();
  }
  entries_[(key.first + key.second % kBucket) & (entries_.size() - 1)] = {key, bound};
}

void BoundTable::grow() {
  std::vector<Entry> old;
  old.swap(entries_);
  entries_.resize(std::max(kFirstEntries, old.size() * 2));
  used_ = 0;
  const std::size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.key == StateKey{}) continue;
    for (std::size_t i = 0; i < kBucket; ++i) {
      Entry& slot = entries_[(entry.key.first + i) & mask];
      if (slot.key == StateKey{}) {
        slot = entry;
        ++used_;
        break;
      }
    }
  }
}

}  // namespace plimsoll::order
