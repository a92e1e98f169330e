// SPDX-License-Identifier: Apache-2.0
// The hit path of planned allocation, inline: what replay_engine.h calls before anything else.
//
// Nouns: cell, Place, PlaceTable, ReplaySlot, LaneFront, ThreadFronts.
//
// A hit compares the request with the next slot of the plan, looks whether that slot and those it
// conflicts with are dead, and moves on: loads, and two stores that no other thread reads until the
// block is passed to it. Between two requests a program's operators empty the nearer caches, so
// what counts is how few cache lines and pages a call touches, more than how few instructions it
// takes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "plimsoll/device/device.h"
#include "plimsoll/exec/recorded_step.h"

namespace plimsoll::exec::detail {

// The state of one slot. The lane's owner alone makes it live, any thread makes it dead.
using Cell = std::atomic<std::uint32_t>;

inline constexpr std::uint32_t kDead = 0;
inline constexpr std::uint32_t kLive = 1;       // handed out
inline constexpr std::uint32_t kLiveNoted = 2;  // handed out while recording: the ledger knows it
inline constexpr std::uint32_t kShadow = 4;     // not handed out; something alive may stand behind
inline constexpr std::uint32_t kPending = 8;    // freed, but another queue's work may still use it

// Where a block of an arena may begin. Kept as long as the arena.
struct Place {
  std::atomic<std::uint64_t> tag{0};  // the offset + 1; 0 where there is no place
  std::atomic<Cell*> cell{nullptr};   // of the block that begins here now
};

// The places of an arena by offset: open addressing, at most a quarter full. The lane's owner adds
// tags and stores cells; who frees a block finds it by an offset that was added before the block
// left.
struct PlaceTable {
  Place* places = nullptr;
  int hash_shift = 63;  // 64 - log2 of how many there are

  std::uint64_t hash(std::uint64_t offset) const {
    return (offset * 0x9E3779B97F4A7C15U) >> hash_shift;
  }
  Place* find(std::uint64_t offset) const {
    std::uint64_t at = hash(offset);
    while (true) {
      const std::uint64_t tag = places[at].tag.load(std::memory_order_relaxed);
      if (tag == offset + 1) [[likely]]
        return &places[at];
      if (tag == 0) return nullptr;
      at = (at + 1) & ((std::uint64_t{1} << (64 - hash_shift)) - 1);
    }
  }
};

// What a hit reads of a slot: one cache line. Unused predecessors name the cell after the last
// slot, which is always dead.
struct alignas(64) ReplaySlot {
  AllocationKey key = 0;
  // Accepts nothing as it stands here.
  std::int64_t minimum_bytes = std::numeric_limits<std::int64_t>::max();
  std::uint64_t span_bytes = 0;  // capacity - minimum; a request fits where bytes - minimum <= span
  std::byte* address = nullptr;
  std::atomic<Cell*>* owner = nullptr;  // of the slot's place
  std::uint32_t own = 0;
  std::uint32_t predecessors[3] = {0, 0, 0};
  std::uint32_t more_count = 0;  // predecessors beyond three
  std::uint32_t more_begin = 0;  // where they stand in the plan's list
};

// Stands in for the next slot where there is none: it accepts nothing, so every request takes the
// slow path, and the hit path needs no check of the lane's state.
inline constexpr ReplaySlot kNoSlot{};

class Lane;

// What a hit reads of its lane: one cache line. Written by the lane's owner alone.
struct alignas(64) LaneFront {
  const ReplaySlot* next = &kNoSlot;
  Cell* cells = nullptr;
  const std::uint32_t* predecessors = nullptr;  // the plan's list
  std::byte* base = nullptr;                    // of the arena
  std::uint64_t arena_bytes = 0;
  PlaceTable places;
  Lane* lane = nullptr;  // null for a thread that has none

  // The next slot's address, or null: the slow path decides.
  void* hit(std::int64_t bytes, AllocationKey key) {
    const ReplaySlot& slot = *next;
    if (slot.key != key || static_cast<std::uint64_t>(bytes - slot.minimum_bytes) > slot.span_bytes)
        [[unlikely]]
      return nullptr;
    Cell* const cell = cells;
    Cell* const own = cell + slot.own;
    // Acquire: who freed those blocks is done with their bytes.
    std::uint32_t busy = own->load(std::memory_order_acquire) |
                         cell[slot.predecessors[0]].load(std::memory_order_acquire) |
                         cell[slot.predecessors[1]].load(std::memory_order_acquire) |
                         cell[slot.predecessors[2]].load(std::memory_order_acquire);
    if (slot.more_count != 0) busy |= busy_beyond_three(slot);
    if (busy != kDead) [[unlikely]]
      return nullptr;
    own->store(kLive, std::memory_order_relaxed);
    slot.owner->store(own, std::memory_order_relaxed);
    next = &slot + 1;
    // An operator runs until the next request: long enough to fetch what that will read.
    __builtin_prefetch(next->owner);
    __builtin_prefetch(&slot + 2);
    return slot.address;
  }

  // Frees a block of this arena that nobody follows. False: the slow path decides.
  bool release(const void* pointer) const {
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(base);
    if (offset >= arena_bytes) [[unlikely]]
      return false;
    const Place* place = places.find(offset);
    if (place == nullptr) [[unlikely]]
      return false;
    Cell* cell = place->cell.load(std::memory_order_relaxed);
    if (cell->load(std::memory_order_relaxed) != kLive) [[unlikely]]
      return false;
    // Release: whoever is given these bytes next sees this thread done with them.
    cell->store(kDead, std::memory_order_release);
    return true;
  }

 private:
  std::uint32_t busy_beyond_three(const ReplaySlot& slot) const {
    std::uint32_t busy = kDead;
    for (std::uint32_t i = 0; i < slot.more_count; ++i)
      busy |= cells[predecessors[slot.more_begin + i]].load(std::memory_order_acquire);
    return busy;
  }
};
static_assert(sizeof(ReplaySlot) == 64 && sizeof(LaneFront) == 64);

// The fronts of this thread's lanes in the engine it asked last.
struct ThreadFronts {
  std::uint64_t serial = 0;                             // the engine's; no engine has 0
  std::array<LaneFront*, device::kQueueCount> lanes{};  // none null where serial is not 0
};

// Initial-exec: a plain load at a fixed distance from the thread's pointer, in shared libraries
// too. The few bytes fit what the loader keeps for libraries that are opened at run time.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadFronts t_fronts;

}  // namespace plimsoll::exec::detail
