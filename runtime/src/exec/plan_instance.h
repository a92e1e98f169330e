// SPDX-License-Identifier: Apache-2.0
// One lane's use of one plan in one arena: which slots live.
//
// Nouns: Arena, PlanInstance, cell, shadow, foreign block.
//
// Each slot has a cell: dead, live (handed out, not freed) or shadow. The owner thread alone makes
// a cell live or a shadow; any thread makes a live cell dead. Passing a slot means that the cursor
// went over it, handed out or not. What holds at every address x at every moment:
//
//   (I) at most one slot over x lives, and if one does, every slot over x passed after it is a
//       shadow.
//
// Proof, by the step that could break it. Handing out k needs k's cell and those of its
// predecessors dead. At each x in k the slot passed last is a predecessor p (or k itself), and p is
// dead; were any slot over x alive, it would be p or p would be a shadow, by (I). Passing k without
// handing it out makes it a shadow unless its predecessors are dead, and then, as above, nothing
// over its addresses lives; a k that still lives from before stays live. A shadow becomes dead only
// where no live cell can be reached from it over predecessors that are shadows; by (I) the slots
// over x passed after a living one form such a path. Handing out a slot that was passed a while ago
// is allowed only where no slot passed since shares an address with it, so that it still is the
// one passed last. Slots of other plans in the same arena that still live are foreign blocks: every
// slot that shares an address with one is a shadow until it dies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "plimsoll/base/interval.h"
#include "plimsoll/exec/allocation_plan.h"
#include "plimsoll/exec/lane_front.h"
#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::exec::detail {

inline bool is_live(std::uint32_t state) { return state == kLive || state == kLiveNoted; }

// A range of upstream memory and, for each place in it where a block may begin, the cell of the
// block that begins there now. Descriptors stay for the engine's lifetime, memory goes earlier.
class Arena {
 public:
  // Errors: those of the upstream, std::bad_alloc.
  Arena(pool::MemoryResource& upstream, std::int64_t bytes, device::Queue queue);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* base() const { return base_; }
  std::int64_t bytes() const { return bytes_; }
  device::Queue queue() const { return queue_; }
  bool contains(const void* pointer) const {
    return reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(base_) <
           static_cast<std::uintptr_t>(bytes_);
  }
  // The cell of the block that begins there, or null where none ever did. Threads: safe for who
  // was handed the block.
  Cell* cell_at(const void* pointer) const noexcept;

  // For the lane that owns the arena: its places, and more of them. Earlier tables stay readable
  // for who frees a block meanwhile.
  const PlaceTable& places() const { return tables_.back()->table; }
  void add_places(const AllocationPlan& plan);

  // Gives the memory back, unless that has happened: then false. No block may be live. The
  // descriptor stays readable.
  bool release() noexcept;

 private:
  struct OwnedTable {
    explicit OwnedTable(int bits);
    void add(std::uint64_t offset, Cell* cell);
    std::unique_ptr<Place[]> storage;
    PlaceTable table;
    std::size_t used = 0;
  };
  void grow(std::size_t places);

  pool::MemoryResource& upstream_;
  device::Queue queue_;
  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0;
  bool is_released_ = false;
  std::vector<std::unique_ptr<OwnedTable>> tables_;  // the last one is in use
  std::atomic<const OwnedTable*> table_{nullptr};    // the same, for other threads
};

struct ForeignBlock {
  Interval range;
  const Cell* cell = nullptr;
};

// Threads: single owner, apart from frees.
class PlanInstance {
 public:
  PlanInstance(std::shared_ptr<const AllocationPlan> plan, std::shared_ptr<Arena> arena);

  const AllocationPlan& plan() const { return *plan_; }
  const std::shared_ptr<const AllocationPlan>& shared_plan() const { return plan_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  Cell* cells() const { return cells_.get(); }
  // One more than the plan has: the last accepts nothing.
  const ReplaySlot* replay_slots() const { return replay_slots_.get(); }
  // Makes the replay slots name the arena's places as they stand now.
  void bind();

  // True where the slot may be handed out now. Turns shadows with nothing behind them to dead.
  bool clear(std::uint32_t slot);
  // Notes that the cursor went over the slot without handing it out.
  void pass(std::uint32_t slot);
  // Hands the slot out. `state` is kLive or kLiveNoted.
  void* hand_out(std::uint32_t slot, std::uint32_t state);
  // True where no slot in (slot, cursor) shares an address with `slot`.
  bool is_untouched(std::uint32_t slot, std::uint32_t cursor) const;

  // Makes this the plan in use: `foreign` lives in the same arena, slots before `cursor` passed.
  void enter(std::vector<ForeignBlock> foreign, std::uint32_t cursor);
  // Drops foreign blocks that are dead, so that their plans' instances may go.
  void forget_dead_foreign();
  // Appends what still lives here.
  void list_live(std::vector<ForeignBlock>& live) const;
  bool any_live() const;

  // For the lane: which plan came in the step after this one, and the last step that tried this.
  PlanInstance* follower() const { return follower_; }
  void set_follower(PlanInstance* follower) { follower_ = follower; }
  bool was_tried_in(std::uint64_t step) const { return tried_in_ == step; }
  void note_tried_in(std::uint64_t step) { tried_in_ = step; }

 private:
  bool meets_foreign(std::uint32_t slot) const;
  bool resolve(std::uint32_t slot);
  Interval range(std::uint32_t slot) const {
    const PlannedSlot& s = plan_->slots()[slot];
    return {s.offset, s.offset + s.capacity_bytes};
  }

  std::shared_ptr<const AllocationPlan> plan_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<Cell[]> cells_;
  std::unique_ptr<ReplaySlot[]> replay_slots_;
  std::vector<ForeignBlock> foreign_;
  std::vector<std::uint32_t> visited_;  // by resolve(): the number of the visit that saw a slot
  std::uint32_t visit_ = 0;
  std::vector<std::uint32_t> stack_;
  PlanInstance* follower_ = nullptr;
  std::uint64_t tried_in_ = 0;
};

}  // namespace plimsoll::exec::detail
