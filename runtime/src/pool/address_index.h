// SPDX-License-Identifier: Apache-2.0
// Noun: AddressIndex, from an arena offset to the block that starts there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace plimsoll::pool {

// Open addressing with linear probing; erasing shifts back what follows, so there are no
// tombstones. Cost: O(1) expected. A failed growth (bad_alloc) leaves everything as it was. Source:
// Knuth, The Art of Computer Programming 3, section 6.4, algorithms L and R.
class AddressIndex {
 public:
  // Makes room so that inserts cannot throw while there are at most `most` entries.
  void reserve(std::size_t most) {
    if (most * 2 <= entries_.size()) return;
    std::vector<Entry> old(std::bit_ceil(std::max<std::size_t>(64, most * 2)));
    old.swap(entries_);
    count_ = 0;
    for (const Entry& entry : old)
      if (entry.offset >= 0) insert(entry.offset, entry.value);
  }

  void insert(std::int64_t offset, std::int32_t value) noexcept {
    std::size_t place = home(offset);
    while (entries_[place].offset >= 0) place = after(place);
    entries_[place] = {offset, value};
    ++count_;
  }

  // -1 where nothing starts there.
  std::int32_t find(std::int64_t offset) const noexcept {
    if (entries_.empty()) return -1;
    for (std::size_t place = home(offset); entries_[place].offset >= 0; place = after(place))
      if (entries_[place].offset == offset) return entries_[place].value;
    return -1;
  }

  void erase(std::int64_t offset) noexcept {
    std::size_t hole = home(offset);
    while (entries_[hole].offset != offset) hole = after(hole);
    for (std::size_t place = after(hole); entries_[place].offset >= 0; place = after(place)) {
      // An entry may fill the hole unless its home lies cyclically in (hole, place].
      const std::size_t from_home = (place - home(entries_[place].offset)) & (entries_.size() - 1);
      const std::size_t from_hole = (place - hole) & (entries_.size() - 1);
      if (from_home < from_hole) continue;
      entries_[hole] = entries_[place];
      hole = place;
    }
    entries_[hole] = Entry{};
    --count_;
  }

  std::int64_t count() const noexcept { return count_; }

 private:
  struct Entry {
    std::int64_t offset = -1;
    std::int32_t value = -1;
  };

  std::size_t home(std::int64_t offset) const noexcept {
    const auto mixed = static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed >> 32) & (entries_.size() - 1);
  }
  std::size_t after(std::size_t place) const noexcept {
    return (place + 1) & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;  // a power of two
  std::int64_t count_ = 0;
};

}  // namespace plimsoll::pool
