// SPDX-License-Identifier: Apache-2.0
// The one c10::Allocator that Plimsoll gives to LibTorch for the CPU.
//
// Nouns: HostAllocator (process-wide, made once, never destroyed, since storages may be freed
// during exit), ArenaScope.
//
// A request goes, in this order, to the arena of the operator that runs on this thread; to the
// arena of the operator on whose behalf this OpenMP worker runs; to the heap, counted by level 0.
// A block goes back by its address: arenas are known by their ranges.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <c10/core/Allocator.h>

#include "plimsoll/exec/replay_engine.h"

#include "arena_source.h"
#include "heap_account.h"

namespace plimsoll::detail {

// Above the one at which LibTorch and back ends install their allocators.
inline constexpr std::uint8_t kAllocatorPriority = 1;

class HostAllocator final : public c10::Allocator {
 public:
  // Returns the process's allocator, installed into LibTorch on the first call.
  static HostAllocator& installed();

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  HeapAccount& account() { return account_; }
  // Starts or stops answering from plans. Blocks of a stopped plan stay valid.
  void set_planning(bool wanted);
  // The plans' engine, or null where planning was never asked for.
  exec::ReplayEngine* plan_engine() const noexcept {
    return engine_.load(std::memory_order_acquire);
  }
  // Gives back memory of allocate_on_heap() whose DataPtr was released.
  void free_on_heap(void* address) noexcept;
  // Memory from the heap, whatever scope is open; for storages that leave an arena.
  c10::DataPtr allocate_on_heap(std::size_t bytes);
  // Says whether storages with this deleter may be moved: the heap's own, or ours.
  bool owns_deleter(c10::DeleterFnPtr deleter) const;

  // Makes [begin, end) belong to `source` until remove_arena. At most 8 at a time.
  // Errors: Unsupported where all are taken.
  void add_arena(const void* begin, const void* end, ArenaSource* source);
  void remove_arena(ArenaSource* source) noexcept;
  // The arena that an address lies in, of whatever device; null where it lies in none.
  ArenaSource* arena_of(const void* address) const noexcept;

 private:
  HostAllocator();
  static void release(void* address);

  struct Range {
    std::atomic<const char*> begin{nullptr};
    std::atomic<const char*> end{nullptr};
    std::atomic<ArenaSource*> source{nullptr};
  };
  static constexpr std::size_t kMaxArenas = 8;

  c10::DataPtr allocate_planned(exec::ReplayEngine& engine, std::size_t bytes);

  // Read by every call: first.
  std::atomic<exec::ReplayEngine*> planning_{nullptr};  // the engine, while plans are wanted
  std::atomic<exec::ReplayEngine*> engine_{nullptr};    // in engine_place_ once it was made
  alignas(exec::ReplayEngine) std::byte engine_place_[sizeof(exec::ReplayEngine)];
  c10::Allocator* heap_;
  HeapAccount account_;
  Range arenas_[kMaxArenas];
};

// Makes the OpenMP workers of the calling thread ask `source` while an ArenaScope is open. Workers
// that start later (a larger thread count) use the heap until it is called again. Some
// microseconds.
void enroll_workers(ArenaSource* source);

// While it lives, this thread's allocations on the device of `source` come from it, and those of
// its enrolled workers. Null leaves the routing as it is.
class ArenaScope {
 public:
  explicit ArenaScope(ArenaSource* source) noexcept;
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  ArenaSource* source_;
  ArenaSource* previous_;
};

// Where this thread's allocations on a device other than the CPU come from; null: not from an
// arena.
ArenaSource* device_source() noexcept;

// While it lives inside an ArenaScope, this thread's allocations come from no arena.
class HeapScope {
 public:
  HeapScope() noexcept;
  ~HeapScope();
  HeapScope(const HeapScope&) = delete;
  HeapScope& operator=(const HeapScope&) = delete;

 private:
  ArenaSource* previous_;
  ArenaSource* previous_device_;
};

}  // namespace plimsoll::detail
