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
  insert_free(first_);
}

bool RangeAllocator::before(SegmentId a, SegmentId b) const noexcept {
  const Segment& left = at(a);
  const Segment& right = at(b);
  if (left.bytes != right.bytes) return left.bytes < right.bytes;
  return left.offset < right.offset;
}

SegmentId RangeAllocator::take_slot() {
  SegmentId slot = unused_;
  if (slot.valid()) {
    unused_ = at(slot).right;
    at(slot) = Segment{};
  } else {
    slot = SegmentId(segments_.size());
    segments_.emplace_back();
  }
  ++segment_count_;
  return slot;
}

void RangeAllocator::give_slot(SegmentId segment) noexcept {
  at(segment) = Segment{};
  at(segment).right = unused_;
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
}

void RangeAllocator::unlink(SegmentId segment) noexcept {
  const Segment& node = at(segment);
  if (node.previous.valid())
    at(node.previous).next = node.next;
  else
    first_ = node.next;
  if (node.next.valid()) at(node.next).previous = node.previous;
}

// Goes down to the place where the new node's priority wins, then splits what is below it by the
// new key into the node's two sides.
void RangeAllocator::insert_free(SegmentId segment) noexcept {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  Segment& node = at(segment);
  node.is_free = true;
  node.tag = -1;
  node.priority = random_;
  SegmentId* link = &root_;
  while (link->valid() && at(*link).priority >= node.priority)
    link = before(*link, segment) ? &at(*link).right : &at(*link).left;
  SegmentId below = *link;
  *link = segment;
  SegmentId* less = &node.left;
  SegmentId* more = &node.right;
  while (below.valid()) {
    if (before(below, segment)) {
      *less = below;
      less = &at(below).right;
      below = *less;
    } else {
      *more = below;
      more = &at(below).left;
      below = *more;
    }
  }
  *less = SegmentId();
  *more = SegmentId();
}

// Finds the node by its key, then joins its two sides in its place.
void RangeAllocator::erase_free(SegmentId segment) noexcept {
  SegmentId* link = &root_;
  while (*link != segment) link = before(*link, segment) ? &at(*link).right : &at(*link).left;
  SegmentId left = at(segment).left;
  SegmentId right = at(segment).right;
  while (left.valid() && right.valid()) {
    if (at(left).priority >= at(right).priority) {
      *link = left;
      link = &at(left).right;
      left = *link;
    } else {
      *link = right;
      link = &at(right).left;
      right = *link;
    }
  }
  *link = left.valid() ? left : right;
  at(segment).left = SegmentId();
  at(segment).right = SegmentId();
  at(segment).is_free = false;
}

std::optional<SegmentId> RangeAllocator::allocate(std::int64_t bytes) {
  const std::int64_t rounded = align_up(bytes, alignment_);
  SegmentId best;
  for (SegmentId node = root_; node.valid();) {
    if (at(node).bytes >= rounded) {
      best = node;
      node = at(node).left;
    } else {
      node = at(node).right;
    }
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
  if (has_head && has_tail) segments_.reserve(segments_.size() + 2);
  const SegmentId head = has_head ? take_slot() : SegmentId();
  const SegmentId tail = has_tail ? take_slot() : SegmentId();
  erase_free(free_segment);
  Segment& segment = at(free_segment);
  segment.offset = offset;
  segment.bytes = bytes;
  segment.tag = -1;
  if (has_head) {
    at(head).offset = begin;
    at(head).bytes = offset - begin;
    link_after(segment.previous, head);
    insert_free(head);
  }
  if (has_tail) {
    at(tail).offset = offset + bytes;
    at(tail).bytes = end - offset - bytes;
    link_after(free_segment, tail);
    insert_free(tail);
  }
  used_bytes_ += bytes;
  return free_segment;
}

SegmentId RangeAllocator::deallocate(SegmentId segment) noexcept {
  used_bytes_ -= at(segment).bytes;
  const SegmentId previous = at(segment).previous;
  const SegmentId next = at(segment).next;
  if (previous.valid() && at(previous).is_free) {
    erase_free(previous);
    at(segment).offset = at(previous).offset;
    at(segment).bytes += at(previous).bytes;
    unlink(previous);
    give_slot(previous);
  }
  if (next.valid() && at(next).is_free) {
    erase_free(next);
    at(segment).bytes += at(next).bytes;
    unlink(next);
    give_slot(next);
  }
  insert_free(segment);
  return segment;
}

std::int64_t RangeAllocator::largest_free_bytes() const noexcept {
  SegmentId node = root_;
  if (!node.valid()) return 0;
  while (at(node).right.valid()) node = at(node).right;
  return at(node).bytes;
}

std::int64_t RangeAllocator::check_tree(SegmentId node) const {
  if (!node.valid()) return 0;
  const Segment& segment = at(node);
  PLIMSOLL_CHECK(segment.is_free, "a used segment stands in the tree of free ones");
  for (const SegmentId child : {segment.left, segment.right})
    if (child.valid())
      PLIMSOLL_CHECK(at(child).priority <= segment.priority, "the treap's heap order is broken");
  if (segment.left.valid())
    PLIMSOLL_CHECK(before(segment.left, node), "the treap's key order is broken");
  if (segment.right.valid())
    PLIMSOLL_CHECK(before(node, segment.right), "the treap's key order is broken");
  return 1 + check_tree(segment.left) + check_tree(segment.right);
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
  PLIMSOLL_CHECK(check_tree(root_) == free_count, "a free segment is missing in the tree");
}

}  // namespace plimsoll::pool
