// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/range_allocator.h"

#include <bit>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::pool {

RangeAllocator::RangeAllocator(std::int64_t capacity, std::int64_t alignment)
    : capacity_(capacity), alignment_(alignment) {
  if (capacity < 0)
    throw InvalidArgument(fmt::format("a capacity of {} bytes is negative", capacity));
  if (alignment < 1 || !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    throw InvalidArgument(fmt::format("an alignment of {} bytes is no power of two", alignment));
  capacity_ = capacity & ~(alignment - 1);
  if (capacity_ == 0) return;
  first_ = take_slot();
  at(first_).bytes = capacity_;
  insert(Tree::kByOffset, first_);
  make_free(first_);
}

bool RangeAllocator::before(Tree tree, SegmentId a, SegmentId b) const noexcept {
  const Segment& left = at(a);
  const Segment& right = at(b);
  if (tree == Tree::kFreeBySize && left.bytes != right.bytes) return left.bytes < right.bytes;
  return left.offset < right.offset;
}

SegmentId RangeAllocator::take_slot() {
  SegmentId slot = unused_;
  if (slot.valid()) {
    unused_ = at(slot).next;
    at(slot) = Segment{};
  } else {
    slot = SegmentId(segments_.size());
    segments_.emplace_back();
  }
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  at(slot).priority = random_;
  ++segment_count_;
  return slot;
}

void RangeAllocator::give_slot(SegmentId segment) noexcept {
  at(segment) = Segment{};
  at(segment).next = unused_;
  unused_ = segment;
  --segment_count_;
}

void RangeAllocator::link_after(SegmentId position, SegmentId segment) noexcept {
  const SegmentId next = position.valid() ? at(position).next : first_;
  at(segment).previous = position;
  at(segment).next = next;
  if (position.valid())
    at(position).next = segment;
  else
    first_ = segment;
  if (next.valid()) at(next).previous = segment;
  insert(Tree::kByOffset, segment);
}

void RangeAllocator::unlink(SegmentId segment) noexcept {
  erase(Tree::kByOffset, segment);
  const Segment& node = at(segment);
  if (node.previous.valid())
    at(node.previous).next = node.next;
  else
    first_ = node.next;
  if (node.next.valid()) at(node.next).previous = node.previous;
}

// Goes down to the place where the new node's priority wins, then splits what is below it by the
// new key into the node's two sides.
void RangeAllocator::insert(Tree tree, SegmentId segment) noexcept {
  const std::uint32_t priority = at(segment).priority;
  SegmentId* link = &roots_[index(tree)];
  while (link->valid() && at(*link).priority >= priority) {
    Links& node = links(tree, *link);
    link = before(tree, *link, segment) ? &node.right : &node.left;
  }
  SegmentId below = *link;
  *link = segment;
  SegmentId* less = &links(tree, segment).left;
  SegmentId* more = &links(tree, segment).right;
  while (below.valid()) {
    if (before(tree, below, segment)) {
      *less = below;
      less = &links(tree, below).right;
      below = *less;
    } else {
      *more = below;
      more = &links(tree, below).left;
      below = *more;
    }
  }
  *less = SegmentId();
  *more = SegmentId();
}

// Finds the node by its key, then joins its two sides in its place.
void RangeAllocator::erase(Tree tree, SegmentId segment) noexcept {
  SegmentId* link = &roots_[index(tree)];
  while (*link != segment) {
    Links& node = links(tree, *link);
    link = before(tree, *link, segment) ? &node.right : &node.left;
  }
  auto [left, right] = links(tree, segment);
  while (left.valid() && right.valid()) {
    if (at(left).priority >= at(right).priority) {
      *link = left;
      link = &links(tree, left).right;
      left = *link;
    } else {
      *link = right;
      link = &links(tree, right).left;
      right = *link;
    }
  }
  *link = left.valid() ? left : right;
  links(tree, segment) = Links{};
}

void RangeAllocator::make_free(SegmentId segment) noexcept {
  at(segment).is_free = true;
  at(segment).tag = -1;
  insert(Tree::kFreeBySize, segment);
}

void RangeAllocator::make_used(SegmentId segment) noexcept {
  erase(Tree::kFreeBySize, segment);
  at(segment).is_free = false;
}

// A free segment goes up in its neighbour.
void RangeAllocator::remove(SegmentId segment) noexcept {
  make_used(segment);
  unlink(segment);
  give_slot(segment);
}

SegmentId RangeAllocator::at_offset(std::int64_t offset) const noexcept {
  SegmentId found;
  for (SegmentId node = root(Tree::kByOffset); node.valid();) {
    const bool is_left = at(node).offset <= offset;
    if (is_left) found = node;
    node = is_left ? links(Tree::kByOffset, node).right : links(Tree::kByOffset, node).left;
  }
  return found;
}

std::optional<SegmentId> RangeAllocator::allocate(std::int64_t bytes) {
  const std::int64_t rounded = align_up(bytes, alignment_);
  SegmentId best;
  for (SegmentId node = root(Tree::kFreeBySize); node.valid();) {
    const bool fits = at(node).bytes >= rounded;
    if (fits) best = node;
    node = fits ? links(Tree::kFreeBySize, node).left : links(Tree::kFreeBySize, node).right;
  }
  if (!best.valid()) return std::nullopt;
  return allocate_at(best, at(best).offset, rounded);
}

SegmentId RangeAllocator::allocate_at(SegmentId free_segment, std::int64_t offset,
                                      std::int64_t bytes) {
  const std::int64_t begin = at(free_segment).offset;
  const std::int64_t end = begin + at(free_segment).bytes;
  PLIMSOLL_CHECK(at(free_segment).is_free && begin <= offset && offset + bytes <= end && bytes > 0,
                 "a range was taken from outside of a free segment");
  const bool has_head = offset > begin;
  const bool has_tail = offset + bytes < end;
  // Slots first: they may throw, and nothing has changed yet.
  if (has_head && has_tail && segments_.capacity() < segments_.size() + 2)
    segments_.reserve(2 * segments_.size() + 2);
  const SegmentId head = has_head ? take_slot() : SegmentId();
  const SegmentId tail = has_tail ? take_slot() : SegmentId();
  make_used(free_segment);
  // Its place among the others stays the same, so the tree by offset need not know.
  Segment& segment = at(free_segment);
  segment.offset = offset;
  segment.bytes = bytes;
  segment.tag = -1;
  if (has_head) {
    at(head).offset = begin;
    at(head).bytes = offset - begin;
    link_after(segment.previous, head);
    make_free(head);
  }
  if (has_tail) {
    at(tail).offset = offset + bytes;
    at(tail).bytes = end - offset - bytes;
    link_after(free_segment, tail);
    make_free(tail);
  }
  used_bytes_ += bytes;
  return free_segment;
}

SegmentId RangeAllocator::deallocate(SegmentId segment) noexcept {
  used_bytes_ -= at(segment).bytes;
  const SegmentId previous = at(segment).previous;
  const SegmentId next = at(segment).next;
  if (previous.valid() && at(previous).is_free) {
    const std::int64_t bytes = at(previous).bytes;
    remove(previous);
    at(segment).offset -= bytes;
    at(segment).bytes += bytes;
  }
  if (next.valid() && at(next).is_free) {
    at(segment).bytes += at(next).bytes;
    remove(next);
  }
  make_free(segment);
  return segment;
}

std::int64_t RangeAllocator::largest_free_bytes() const noexcept {
  SegmentId node = root(Tree::kFreeBySize);
  if (!node.valid()) return 0;
  while (links(Tree::kFreeBySize, node).right.valid()) node = links(Tree::kFreeBySize, node).right;
  return at(node).bytes;
}

std::int64_t RangeAllocator::check_tree(Tree tree, SegmentId node) const {
  if (!node.valid()) return 0;
  PLIMSOLL_CHECK(tree == Tree::kByOffset || at(node).is_free,
                 "a used segment stands in the tree of free ones");
  const auto [left, right] = links(tree, node);
  for (const SegmentId child : {left, right})
    if (child.valid())
      PLIMSOLL_CHECK(at(child).priority <= at(node).priority, "the treap's heap order is broken");
  if (left.valid()) PLIMSOLL_CHECK(before(tree, left, node), "the treap's key order is broken");
  if (right.valid()) PLIMSOLL_CHECK(before(tree, node, right), "the treap's key order is broken");
  return 1 + check_tree(tree, left) + check_tree(tree, right);
}

void RangeAllocator::check_invariants() const {
  std::int64_t end = 0;
  std::int64_t used = 0;
  std::int64_t free_count = 0;
  std::int32_t count = 0;
  bool was_free = false;
  SegmentId previous;
  for (SegmentId id = first_; id.valid(); id = at(id).next) {
    const Segment& segment = at(id);
    PLIMSOLL_CHECK(segment.offset == end, "segments leave a gap or overlap");
    PLIMSOLL_CHECK(segment.bytes > 0 && segment.bytes % alignment_ == 0, "a segment is unaligned");
    PLIMSOLL_CHECK(segment.previous == previous, "the list of segments is broken");
    PLIMSOLL_CHECK(!(was_free && segment.is_free), "two free segments are neighbours");
    was_free = segment.is_free;
    end += segment.bytes;
    free_count += segment.is_free ? 1 : 0;
    used += segment.is_free ? 0 : segment.bytes;
    previous = id;
    ++count;
  }
  PLIMSOLL_CHECK(end == capacity_, "segments do not cover the capacity");
  PLIMSOLL_CHECK(used == used_bytes_, "used bytes are miscounted");
  PLIMSOLL_CHECK(count == segment_count_, "segments are miscounted");
  PLIMSOLL_CHECK(check_tree(Tree::kFreeBySize, root(Tree::kFreeBySize)) == free_count,
                 "a free segment is missing in the tree");
  PLIMSOLL_CHECK(check_tree(Tree::kByOffset, root(Tree::kByOffset)) == count,
                 "a segment is missing in the tree by offset");
}

}  // namespace plimsoll::pool
