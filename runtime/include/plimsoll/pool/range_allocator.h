// SPDX-License-Identifier: Apache-2.0
// Ranges of an address space: best fit, lowest address first, neighbours joined at once.
//
// Nouns: RangeAllocator, SegmentId.
//
//     [used a][free][used b][used c][free ........]    segments cover [0, capacity) without gaps;
//                                                      no two free ones are neighbours
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plimsoll/base/id.h"

namespace plimsoll::pool {

// Names a segment until it is freed or, where free, until a neighbour changes.
using SegmentId = Id<struct SegmentTag>;

// Holds no memory, only numbers. Free segments stand in a treap by (bytes, offset), all segments in
// a list by offset.
// Threads: needs the caller's lock. Cost: O(log f) expected in the number of free segments.
// Determinism: same calls, same offsets.
// Source: treap: Seidel and Aragon, "Randomized search trees", Algorithmica 16 (1996).
class RangeAllocator {
 public:
  // `capacity` >= 0 is cut down to a multiple of `alignment`, a power of two.
  RangeAllocator(std::int64_t capacity, std::int64_t alignment);

  // Takes the smallest free segment that holds `bytes` > 0 (rounded up), the lowest of these.
  std::optional<SegmentId> allocate(std::int64_t bytes);
  // Takes [offset, offset + bytes) out of the free segment it lies in, both aligned.
  SegmentId allocate_at(SegmentId free_segment, std::int64_t offset, std::int64_t bytes);
  // Frees a segment and returns the free segment it became part of.
  SegmentId deallocate(SegmentId segment) noexcept;

  std::int64_t offset(SegmentId segment) const noexcept { return at(segment).offset; }
  std::int64_t bytes(SegmentId segment) const noexcept { return at(segment).bytes; }
  bool is_free(SegmentId segment) const noexcept { return at(segment).is_free; }
  // A number the user keeps with a used segment; -1 at first.
  std::int32_t tag(SegmentId segment) const noexcept { return at(segment).tag; }
  void set_tag(SegmentId segment, std::int32_t tag) noexcept {
    segments_[segment.index()].tag = tag;
  }

  // In order of offset; an invalid id past the ends.
  SegmentId first() const noexcept { return first_; }
  SegmentId next(SegmentId segment) const noexcept { return at(segment).next; }
  SegmentId previous(SegmentId segment) const noexcept { return at(segment).previous; }

  std::int64_t capacity() const noexcept { return capacity_; }
  std::int64_t alignment() const noexcept { return alignment_; }
  std::int64_t used_bytes() const noexcept { return used_bytes_; }
  std::int64_t largest_free_bytes() const noexcept;
  std::int32_t segment_count() const noexcept { return segment_count_; }
  // Errors: InternalError naming the equation that does not hold. O(n).
  void check_invariants() const;

 private:
  struct Segment {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    SegmentId previous;
    SegmentId next;
    SegmentId left;   // in the treap, where free
    SegmentId right;  // in the treap, or the next of the unused slots
    std::uint32_t priority = 0;
    std::int32_t tag = -1;
    bool is_free = false;
  };

  const Segment& at(SegmentId segment) const noexcept { return segments_[segment.index()]; }
  Segment& at(SegmentId segment) noexcept { return segments_[segment.index()]; }
  bool before(SegmentId a, SegmentId b) const noexcept;
  SegmentId take_slot();
  void give_slot(SegmentId segment) noexcept;
  void link_after(SegmentId position, SegmentId segment) noexcept;
  void unlink(SegmentId segment) noexcept;
  void insert_free(SegmentId segment) noexcept;
  void erase_free(SegmentId segment) noexcept;
  std::int64_t check_tree(SegmentId node) const;

  std::int64_t capacity_;
  std::int64_t alignment_;
  std::vector<Segment> segments_;
  SegmentId first_;
  SegmentId root_;
  SegmentId unused_;
  std::uint32_t random_ = 0x9e3779b9;
  std::int64_t used_bytes_ = 0;
  std::int32_t segment_count_ = 0;
};

}  // namespace plimsoll::pool
