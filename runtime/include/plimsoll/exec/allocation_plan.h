// SPDX-License-Identifier: Apache-2.0
// Where every allocation of a repeating step goes.
//
// Nouns: PlannedSlot, AllocationPlan, predecessor.
//
// A slot is one allocation of the step with its place in the arena. Slots that share an address
// must not live at once. Checking all pairs at each hand-out would be slow, so each slot knows its
// predecessors only: paint every slot over its range, in order, again and again; what shows under a
// slot just before it is painted are its predecessors.
//
//     address          step k                    step k+1
//       |   [ 0 ]  [   1   ]
//       |   [ 0 ]  [   1   ] [ 2 ]      predecessors: 2 -> {1}; 1 -> {0, 3}; 0 -> {1, 2}
//       |          [   1   ] [ 3 ]
//       +--------------------------------> order of allocation
//
// That suffices as long as every slot is passed in order, handed out or not; a slot that is passed
// without being handed out while a predecessor still lives becomes a shadow, which blocks like a
// living one until nothing alive stands behind it (see src/exec/plan_instance.h for the proof).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plimsoll/exec/recorded_step.h"

namespace plimsoll::exec {

struct PlannedSlot {
  AllocationKey key = 0;
  std::int64_t minimum_bytes = 1;   // the smallest request the slot serves
  std::int64_t capacity_bytes = 0;  // the largest, a multiple of the alignment
  std::int64_t offset = 0;          // in the arena, a multiple of the alignment
  std::int64_t death = 0;           // as RecordedBlock::death; kNeverFreed where the slot escapes
  bool escapes = false;             // served by the upstream resource; offset means nothing
  friend bool operator==(const PlannedSlot&, const PlannedSlot&) = default;
};

// Immutable, shared by all lanes of a role. Threads: safe.
class AllocationPlan {
 public:
  // `alignment_bytes` is a power of two. Whether lifetimes of overlapping slots overlap is not
  // looked at here: that is find_overlap(), and replay checks it at every hand-out.
  // Cost: O(n log n). Errors: InvalidArgument for a capacity that is not positive, offsets or
  // capacities that are not aligned, negative offsets, minimum above capacity, over 2^31 slots.
  AllocationPlan(std::vector<PlannedSlot> slots, std::int64_t alignment_bytes);

  const std::vector<PlannedSlot>& slots() const { return slots_; }
  std::size_t size() const { return slots_.size(); }
  std::int64_t alignment_bytes() const { return alignment_bytes_; }
  // The end of the highest slot.
  std::int64_t arena_bytes() const { return arena_bytes_; }
  // The most bytes of slots alive at one time: no plan can do with less.
  std::int64_t load_bytes() const { return load_bytes_; }

  bool accepts(std::size_t slot, std::int64_t bytes, AllocationKey key) const {
    const PlannedSlot& s = slots_[slot];
    return s.key == key && s.minimum_bytes <= bytes && bytes <= s.capacity_bytes;
  }
  // The slots that show under `slot` just before it is painted, itself left out.
  std::span<const std::uint32_t> predecessors(std::size_t slot) const {
    return std::span(predecessors_)
        .subspan(predecessor_begin_[slot], predecessor_begin_[slot + 1] - predecessor_begin_[slot]);
  }
  // Those of all slots one after another, and where in that list a slot's begin.
  std::span<const std::uint32_t> all_predecessors() const { return predecessors_; }
  std::uint32_t predecessors_begin(std::size_t slot) const { return predecessor_begin_[slot]; }
  // True where the first `count` slots of both serve a common request each. Cost: O(count).
  bool begins_like(const AllocationPlan& other, std::size_t count) const;
  // True where the plan serves this step: every request accepted, no block outliving its slot.
  bool covers(const RecordedStep& step) const;

 private:
  void find_predecessors();

  std::vector<PlannedSlot> slots_;
  std::int64_t alignment_bytes_;
  std::int64_t arena_bytes_ = 0;
  std::int64_t load_bytes_ = 0;
  std::vector<std::uint32_t> predecessors_;
  std::vector<std::uint32_t> predecessor_begin_;
};

struct AllocationPlanOptions {
  std::int64_t alignment_bytes = 64;
  // Room above a size that was seen to grow, in percent: fewer new plans against more memory.
  int growth_percent = 25;
};

// Plans one recorded step. With `previous`, a plan of the same structure, sizes and deaths become
// running maxima over both. Pure; the same input gives the same plan. Cost: that of the layout.
// Errors: InvalidArgument where the sum of sizes leaves 64 bits or `previous` has another
// structure.
AllocationPlan plan_allocations(const RecordedStep& step, const AllocationPlanOptions& options = {},
                                const AllocationPlan* previous = nullptr);

// Checks all pairs of slots that share an address: their lifetimes must not meet. Quadratic and
// independent of the planner. Returns the first pair that is wrong as {a, b}, or nothing.
std::vector<std::size_t> find_overlap(const AllocationPlan& plan);

}  // namespace plimsoll::exec
