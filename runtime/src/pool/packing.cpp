// SPDX-License-Identifier: Apache-2.0
// Operators whose needs are not known: their operands are slid together, and what they allocate is
// placed at the edge of a gap between immovable blocks, so that the rest of the gap stays one
// piece.
//
//     before  [i1][H1][....][i2][H2][i3]        H: operand, i: idle
//     packed  [H1][H2][i1][....][i2]..[i3]      any allocation up to the gap now finds room
#include <algorithm>
#include <limits>

#include "pool/tensor_pool_state.h"

namespace plimsoll::pool {

// Visits the stretches between immovable blocks and the `fixed` ones, by offset. Moving and doomed
// blocks count as part of a stretch.
template <typename Visit>
void TensorPool::State::visit_gaps(std::span<const BlockId> fixed, const Visit& visit) const {
  const auto range = [&](BlockId id) { return range_of(blocks_[id.index()].segment); };
  std::int64_t begin = 0;
  const auto end_at = [&](const Interval& wall) {
    if (begin < wall.begin) visit(Interval{begin, wall.begin});
    begin = std::max(begin, wall.end);
  };
  auto other = fixed.begin();
  for (const BlockId id : immovable_) {
    for (; other != fixed.end() && range(*other).begin < range(id).begin; ++other)
      end_at(range(*other));
    end_at(range(id));
  }
  for (; other != fixed.end(); ++other) end_at(range(*other));
  end_at({arena_.capacity(), arena_.capacity()});
}

std::vector<BlockId> TensorPool::State::by_offset(std::span<const BlockId> ids) const {
  const auto offset_of = [&](BlockId id) { return arena_.offset(blocks_[id.index()].segment); };
  std::vector<BlockId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end(),
            [&](BlockId a, BlockId b) { return offset_of(a) < offset_of(b); });
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

// Whether, with the operands pinned where they are, nearly all of the rest is one gap already.
bool TensorPool::State::is_packed_well(std::span<const BlockId> ids) const {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  visit_gaps(by_offset(ids), [&](const Interval& gap) {
    total += gap.length();
    largest = std::max(largest, gap.length());
  });
  return largest >= total - total / 16;
}

// Slides an idle block into the smallest hole outside of a window; false where none takes it.
bool TensorPool::State::slide_out_of(BlockId id, const Interval& window) {
  const std::int64_t bytes = blocks_[id.index()].range_bytes;
  Interval best{0, std::numeric_limits<std::int64_t>::max()};
  const auto consider = [&](const Interval& part) {
    if (part.length() < bytes || part.length() > best.length()) return;
    if (part.length() < best.length() || part.begin < best.begin) best = part;
  };
  const auto consider_outside = [&](const Interval& hole) {
    consider(intersect(hole, {0, window.begin}));
    consider(intersect(hole, {window.end, arena_.capacity()}));
  };
  // A hole across an edge of the window counts with what lies outside; of all others the smallest.
  for (const std::int64_t edge : {window.begin, window.end}) {
    const SegmentId segment = edge < arena_.capacity() ? arena_.at_offset(edge) : SegmentId();
    if (segment.valid() && arena_.is_free(segment)) consider_outside(range_of(segment));
  }
  arena_.visit_free(bytes, [&](SegmentId segment) {
    const Interval hole = range_of(segment);
    if (hole.overlaps(window)) return true;
    consider(hole);
    return false;
  });
  if (best.length() == std::numeric_limits<std::int64_t>::max()) return false;
  slide_to(id, best.begin);
  return true;
}

// Moves all idle blocks out of a window that holds no fixed ones: into other holes where they fit,
// else below. Operands stay. False where one may not be evicted and fits nowhere else.
bool TensorPool::State::clear_window(const Interval& window) {
  std::vector<BlockId> idle;
  if (window.empty()) return true;
  for (SegmentId segment = arena_.at_offset(window.begin);
       segment.valid() && arena_.offset(segment) < window.end; segment = arena_.next(segment)) {
    if (arena_.is_free(segment)) continue;
    const BlockId id(arena_.tag(segment));
    if (!blocks_[id.index()].is_held) idle.push_back(id);
  }
  std::sort(idle.begin(), idle.end(), [&](BlockId a, BlockId b) {
    const std::int64_t left = blocks_[a.index()].range_bytes;
    const std::int64_t right = blocks_[b.index()].range_bytes;
    return left != right ? left > right : a < b;
  });
  for (const BlockId id : idle) {
    const Block& block = blocks_[id.index()];
    if (block.moving_index >= 0) finish_move(id);
    if (!block.is_alive || block.residence != Residence::kResident) continue;
    if (slide_out_of(id, window)) continue;
    if (policy_.eviction_cost(id) == std::numeric_limits<double>::infinity()) return false;
    evict_now(id);
  }
  return true;
}

void TensorPool::State::pack(std::span<const BlockId> ids) {
  if (is_packed_well(ids)) return;
  Interval gap;
  visit_gaps({}, [&](const Interval& candidate) {
    if (candidate.length() > gap.length()) gap = candidate;
  });
  std::vector<BlockId> held = by_offset(ids);
  std::erase_if(held, [&](BlockId id) { return is_immovable(at(id)); });
  std::int64_t bytes = 0;
  for (const BlockId id : held) bytes += blocks_[id.index()].range_bytes;
  const Interval window{gap.begin, gap.begin + bytes};
  if (window.end > gap.end) return;
  if (!clear_window(window)) return;
  // First those that start in the window, downwards in order; then the rest into what is left.
  std::int64_t end = window.begin;
  for (const bool is_inside : {true, false}) {
    for (const BlockId id : held) {
      const std::int64_t offset = arena_.offset(blocks_[id.index()].segment);
      if (window.contains(offset) != is_inside) continue;
      slide_to(id, end);
      end += blocks_[id.index()].range_bytes;
    }
  }
}

// Takes a range at the lower edge of the smallest gap that can hold it, moving what is idle there
// out of the way; empty where that cannot be done.
std::optional<SegmentId> TensorPool::State::range_at_edge(std::int64_t bytes) {
  if (bytes > usable_bytes()) make_hole(bytes);
  std::optional<Interval> gap;
  visit_gaps({}, [&](const Interval& candidate) {
    if (candidate.length() < bytes) return;
    if (!gap || candidate.length() < gap->length()) gap = candidate;
  });
  if (!gap) return std::nullopt;
  const Interval window{gap->begin, gap->begin + bytes};
  try {
    if (!clear_window(window)) return std::nullopt;
  } catch (const HostOutOfMemory&) {
    return std::nullopt;  // what cannot leave stays; a hole elsewhere may do
  }
  const SegmentId segment = free_segment_with(window.begin);
  return arena_.allocate_at(segment, window.begin, bytes);
}

}  // namespace plimsoll::pool
