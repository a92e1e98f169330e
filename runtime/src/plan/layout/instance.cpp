// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/instance.h"

#include <algorithm>

namespace plimsoll::plan::layout_detail {

void Instance::classify() {
  has_windows = has_gaps = has_fixed = has_alignment = false;
  for (const Item& item : items) {
    has_gaps |= item.piece_end - item.piece_begin > 1;
    has_fixed |= item.fixed >= 0;
    has_alignment |= item.alignment != 1;
    for (std::int32_t p = item.piece_begin; p < item.piece_end; ++p) {
      const Piece& piece = pieces[static_cast<std::size_t>(p)];
      has_windows |= piece.low != 0 || piece.high != item.size;
    }
  }
}

std::vector<std::int64_t> Instance::section_loads() const {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(sections) + 1, 0);
  for (const Item& item : items) {
    for (std::int32_t p = item.piece_begin; p < item.piece_end; ++p) {
      const Piece& piece = pieces[static_cast<std::size_t>(p)];
      loads[static_cast<std::size_t>(piece.first)] += piece.high - piece.low;
      loads[static_cast<std::size_t>(piece.last)] -= piece.high - piece.low;
    }
  }
  for (std::size_t s = 1; s < loads.size(); ++s) loads[s] += loads[s - 1];
  loads.pop_back();
  return loads;
}

std::int64_t height_of(const Instance& instance, const Offsets& offsets) {
  std::int64_t height = 0;
  for (std::size_t i = 0; i < instance.items.size(); ++i) {
    height = std::max(height, offsets[i] + instance.items[i].size);
  }
  return height;
}

}  // namespace plimsoll::plan::layout_detail
