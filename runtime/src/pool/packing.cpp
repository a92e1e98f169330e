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

// Stretches without fixed blocks, by offset. Moving and doomed blocks count as part of the gap.
template <typename IsFixed>
std::vector<TensorPool::State::Gap> TensorPool::State::gaps(const IsFixed& is_fixed) const {
  std::vector<Gap> gaps;
  bool is_open = false;
  for (SegmentId segment = arena_.first(); segment.valid(); segment = arena_.next(segment)) {
    const std::int64_t begin = arena_.offset(segment);
    const bool is_free = arena_.is_free(segment);
    if (!is_free && is_fixed(blocks_[static_cast<std::size_t>(arena_.tag(segment))])) {
      is_open = false;
      continue;
    }
    if (!is_open) gaps.push_back({{begin, begin}, false});
    is_open = true;
    gaps.back().range.end = begin + arena_.bytes(segment);
    if (!is_free && blocks_[static_cast<std::size_t>(arena_.tag(segment))].is_held)
      gaps.back().has_held = true;
  }
  return gaps;
}

// Whether, with the operands pinned where they are, nearly all of the rest is one gap already.
bool TensorPool::State::is_packed_well() const {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (const Gap& gap :
       gaps([](const Block& block) { return is_immovable(block) || block.is_held; })) {
    total += gap.range.length();
    largest = std::max(largest, gap.range.length());
  }
  return largest >= total - total / 16;
}

// Slides an idle block into the smallest hole outside of a window; false where none takes it.
bool TensorPool::State::slide_out_of(BlockId id, const Interval& window) {
  const std::int64_t bytes = blocks_[id.index()].range_bytes;
  std::int64_t best_offset = -1;
  std::int64_t best_bytes = std::numeric_limits<std::int64_t>::max();
  for (SegmentId segment = arena_.first(); segment.valid(); segment = arena_.next(segment)) {
    if (!arena_.is_free(segment)) continue;
    const Interval hole{arena_.offset(segment), arena_.offset(segment) + arena_.bytes(segment)};
    for (const Interval part :
         {intersect(hole, {0, window.begin}), intersect(hole, {window.end, arena_.capacity()})}) {
      if (part.length() < bytes || part.length() >= best_bytes) continue;
      best_bytes = part.length();
      best_offset = part.begin;
    }
  }
  if (best_offset < 0) return false;
  slide_to(id, best_offset);
  return true;
}

// Moves all idle blocks out of a window that holds no fixed ones: into other holes where they fit,
// else below. Operands stay. False where one may not be evicted and fits nowhere else.
bool TensorPool::State::clear_window(const Interval& window) {
  std::vector<BlockId> idle;
  for (SegmentId segment = arena_.first(); segment.valid(); segment = arena_.next(segment)) {
    const Interval range{arena_.offset(segment), arena_.offset(segment) + arena_.bytes(segment)};
    if (arena_.is_free(segment) || !range.overlaps(window)) continue;
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
  if (is_packed_well()) return;
  Interval gap;
  for (const Gap& candidate : gaps([](const Block& block) { return is_immovable(block); }))
    if (candidate.range.length() > gap.length()) gap = candidate.range;
  std::vector<BlockId> held(ids.begin(), ids.end());
  std::erase_if(held, [&](BlockId id) { return is_immovable(at(id)); });
  const auto offset_of = [&](BlockId id) { return arena_.offset(blocks_[id.index()].segment); };
  std::sort(held.begin(), held.end(),
            [&](BlockId a, BlockId b) { return offset_of(a) < offset_of(b); });
  held.erase(std::unique(held.begin(), held.end()), held.end());
  std::int64_t bytes = 0;
  for (const BlockId id : held) bytes += blocks_[id.index()].range_bytes;
  const Interval window{gap.begin, gap.begin + bytes};
  if (window.end > gap.end) return;
  if (!clear_window(window)) return;
  // First those that start in the window, downwards in order; then the rest into what is left.
  std::int64_t end = window.begin;
  for (const bool is_inside : {true, false}) {
    for (const BlockId id : held) {
      if (window.contains(offset_of(id)) != is_inside) continue;
      slide_to(id, end);
      end += blocks_[id.index()].range_bytes;
    }
  }
}

// Takes a range at the lower edge of the smallest gap that can hold it, moving what is idle there
// out of the way; empty where that cannot be done.
std::optional<SegmentId> TensorPool::State::range_at_edge(std::int64_t bytes) {
  if (bytes > usable_bytes()) make_hole(bytes);
  Interval gap{0, std::numeric_limits<std::int64_t>::max()};
  bool is_found = false;
  for (const Gap& candidate : gaps([](const Block& block) { return is_immovable(block); })) {
    if (candidate.range.length() < bytes || candidate.range.length() >= gap.length()) continue;
    gap = candidate.range;
    is_found = true;
  }
  if (!is_found) return std::nullopt;
  const Interval window{gap.begin, gap.begin + bytes};
  try {
    if (!clear_window(window)) return std::nullopt;
  } catch (const HostOutOfMemory&) {
    return std::nullopt;  // what cannot leave stays; a hole elsewhere may do
  }
  const SegmentId segment = free_segment_with(window.begin, SegmentId());
  return arena_.allocate_at(segment, window.begin, bytes);
}

}  // namespace plimsoll::pool
