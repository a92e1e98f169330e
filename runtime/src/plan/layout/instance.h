// SPDX-License-Identifier: Apache-2.0
// What every stage of the layout engine works on: one independent part of one arena, times
// compressed to maximal sections, bytes scaled by their common divisor.
//
// Nouns: Piece, Instance, Placement.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace plimsoll::plan::layout_detail {

// A part of a buffer: it occupies [low, high) above its offset in sections [first, last).
struct Piece {
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
};

struct Item {
  std::int64_t size = 0;
  std::int64_t alignment = 1;
  std::int64_t fixed = -1;  // -1: free
  std::int64_t hint = -1;
  std::int32_t origin = 0;  // index in the whole problem; beyond the buffers: a reserved range
  std::int32_t piece_begin = 0;
  std::int32_t piece_end = 0;
};

// A section is a moment at which something has begun and something is about to end: two buffers
// meet in time exactly where they meet in a section.
struct Instance {
  std::vector<Item> items;
  std::vector<Piece> pieces;
  std::int32_t sections = 0;
  bool has_windows = false;    // some piece is not the whole height of its item
  bool has_gaps = false;       // some item has more than one piece
  bool has_fixed = false;      // some item is fixed
  bool has_alignment = false;  // some alignment is not 1

  std::span<const Piece> pieces_of(std::size_t item) const {
    return {pieces.data() + items[item].piece_begin, pieces.data() + items[item].piece_end};
  }
  std::int32_t first_section(std::size_t item) const {
    return pieces[static_cast<std::size_t>(items[item].piece_begin)].first;
  }
  std::int32_t last_section(std::size_t item) const {
    return pieces[static_cast<std::size_t>(items[item].piece_end) - 1].last;
  }
  // Sets the has_ flags from the items.
  void classify();
  // The sum of occupied heights in each section.
  std::vector<std::int64_t> section_loads() const;
};

using Offsets = std::vector<std::int64_t>;
using StopCheck = std::function<bool()>;

// The highest top of a layout of an instance.
std::int64_t height_of(const Instance& instance, const Offsets& offsets);

inline std::int64_t round_up(std::int64_t value, std::int64_t alignment) {
  if (alignment == 1) return value;
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace plimsoll::plan::layout_detail
