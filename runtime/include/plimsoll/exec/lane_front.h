// SPDX-License-Identifier: Apache-2.0
// The hit path of planned allocation, inline: what replay_engine.h calls before anything else.
//
// Nouns: cell, ReplaySlot, LaneFront, ThreadFronts.
//
// A hit compares the request with the next slot of the plan, looks whether that slot and those it
// conflicts with are dead, and moves on: loads, and two stores that no other thread reads until the
// block is passed to it.
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

// What a hit reads of a slot: one cache line. Unused predecessors name the cell after the last
// slot, which is always dead.
struct alignas(64) ReplaySlot {
  AllocationKey key;
  std::int64_t minimum_bytes;
  std::uint64_t span_bytes;  // capacity - minimum; a request fits where bytes - minimum <= span
  std::int64_t offset;
  std::uint32_t own;
  std::uint32_t predecessors[3];
  std::uint32_t more_count;           // predecessors beyond three
  const std::uint32_t* more;          // in the plan
};

// Stands in for the next slot where there is none: it accepts nothing, so every request takes the
// slow path, and the hit path needs no check of the lane's state.
inline constexpr ReplaySlot kNoSlot{
    0, std::numeric_limits<std::int64_t>::max(), 0, 0, 0, {0, 0, 0}, 0, nullptr};

class Lane;

// What a hit reads of its lane: one cache line. Written by the lane's owner alone.
struct alignas(64) LaneFront {
  const ReplaySlot* next = &kNoSlot;
  Cell* cells = nullptr;
  std::byte* base = nullptr;  // of the arena
  std::uint64_t arena_bytes = 0;
  Cell** owners = nullptr;  // the arena's: for each place the cell of the block that begins there
  int shift = 0;            // address to place
  Lane* lane = nullptr;     // null for a thread that has none

  // The next slot's place, or null: the slow path decides.
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
    const std::uint32_t more_count = slot.more_count;
    for (std::uint32_t i = 0; i < more_count; ++i)
      busy |= cell[slot.more[i]].load(std::memory_order_acquire);
    if (busy != kDead) [[unlikely]]
      return nullptr;
    const std::int64_t offset = slot.offset;
    own->store(kLive, std::memory_order_relaxed);
    std::atomic_ref<Cell*>(owners[offset >> shift]).store(own, std::memory_order_relaxed);
    ++next;
    return base + offset;
  }

  // Frees a block of this arena that nobody follows. False: the slow path decides.
  bool release(const void* pointer) const {
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(base);
    if (offset >= arena_bytes) [[unlikely]]
      return false;
    Cell* cell = std::atomic_ref<Cell*>(owners[offset >> shift]).load(std::memory_order_relaxed);
    if (cell->load(std::memory_order_relaxed) != kLive) [[unlikely]]
      return false;
    // Release: whoever is given these bytes next sees this thread done with them.
    cell->store(kDead, std::memory_order_release);
    return true;
  }
};

// The fronts of this thread's lanes in the engine it asked last.
struct ThreadFronts {
  std::uint64_t serial = 0;  // the engine's; no engine has 0
  std::array<LaneFront*, device::kQueueCount> lanes{};  // none null where serial is not 0
};

// Initial-exec: a plain load at a fixed distance from the thread's pointer, in shared libraries
// too. The few bytes fit what the loader keeps for libraries that are opened at run time.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadFronts t_fronts;

}  // namespace plimsoll::exec::detail
