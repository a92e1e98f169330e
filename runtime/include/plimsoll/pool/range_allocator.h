// SPDX-License-Identifier: Apache-2.0
// Ranges of an address space: best fit, lowest address first, neighbours joined at once.
//
// Nouns: RangeAllocator, SegmentId.
//
//     [used a][free][used b][used c][free ........]    segments cover [0, capacity) without gaps;
//                                                      no two free ones are neighbours
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "plimsoll/base/id.h"

namespace plimsoll::pool {

// Names a segment until it is freed or, where free, until a neighbour changes.
using SegmentId = Id<struct SegmentTag>;

// Holds no memory, only numbers. Free segments stand in a treap by (bytes, offset), all segments in
// a list and a treap by offset.
// Threads: needs the caller's lock. Cost: O(log n) expected in the number of segments.
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

  // The segment that holds the byte at `offset`, 0 <= offset < capacity. O(log n) expected.
  SegmentId at_offset(std::int64_t offset) const noexcept;
  // Visits free segments of at least `bytes` by (bytes, offset) until `visit` returns false.
  // O(log n) expected and the visits.
  template <typename Visit>
  void visit_free(std::int64_t bytes, const Visit& visit) const {
    visit_free_below(root(Tree::kFreeBySize), bytes, visit);
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
  enum class Tree : std::uint8_t { kFreeBySize, kByOffset };
  struct Links {
    SegmentId left;
    SegmentId right;
  };
  struct Segment {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    SegmentId previous;
    SegmentId next;  // also of the unused slots
    std::array<Links, 2> links;
    std::uint32_t priority = 0;  // in both trees
    std::int32_t tag = -1;
    bool is_free = false;
  };

  const Segment& at(SegmentId segment) const noexcept { return segments_[segment.index()]; }
  Segment& at(SegmentId segment) noexcept { return segments_[segment.index()]; }
  static std::size_t index(Tree tree) noexcept { return static_cast<std::size_t>(tree); }
  SegmentId root(Tree tree) const noexcept { return roots_[index(tree)]; }
  const Links& links(Tree tree, SegmentId segment) const noexcept {
    return at(segment).links[index(tree)];
  }
  Links& links(Tree tree, SegmentId segment) noexcept { return at(segment).links[index(tree)]; }
  bool before(Tree tree, SegmentId a, SegmentId b) const noexcept;
  void insert(Tree tree, SegmentId segment) noexcept;
  void erase(Tree tree, SegmentId segment) noexcept;
  SegmentId take_slot();
  void give_slot(SegmentId segment) noexcept;
  void link_after(SegmentId position, SegmentId segment) noexcept;
  void unlink(SegmentId segment) noexcept;
  void make_free(SegmentId segment) noexcept;
  void make_used(SegmentId segment) noexcept;
  void remove(SegmentId segment) noexcept;
  template <typename Visit>
  bool visit_free_below(SegmentId node, std::int64_t bytes, const Visit& visit) const {
    if (!node.valid()) return true;
    const auto [left, right] = links(Tree::kFreeBySize, node);
    if (at(node).bytes >= bytes) {
      if (!visit_free_below(left, bytes, visit) || !visit(node)) return false;
    }
    return visit_free_below(right, bytes, visit);
  }
  std::int64_t check_tree(Tree tree, SegmentId node) const;

  std::int64_t capacity_;
  std::int64_t alignment_;
  std::vector<Segment> segments_;
  SegmentId first_;
  std::array<SegmentId, 2> roots_;
  SegmentId unused_;
  std::uint32_t random_ = 0x9e3779b9;
  std::int64_t used_bytes_ = 0;
  std::int32_t segment_count_ = 0;
};

}  // namespace plimsoll::pool
