// SPDX-License-Identifier: Apache-2.0
// Noun: ArenaResource, a device's arena handed out by best fit, aware of queues.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "plimsoll/pool/memory_resource.h"
#include "plimsoll/pool/range_allocator.h"

namespace plimsoll::pool {

// Memory freed while work of its queue is pending is handed out again once that work is done; a
// request that fits no other way waits for it instead of failing.
// Sizes count rounded up to the alignment. Threads: safe, one lock.
// Cost: O(log n) in free ranges; a free on a copy queue records an event.
class ArenaResource final : public MemoryResource {
 public:
  // Reserves the device's arena, `bytes` > 0; the device outlives this.
  // Errors: InvalidArgument, DeviceOutOfMemory.
  ArenaResource(device::Device& device, std::int64_t bytes);
  ~ArenaResource() override;

  void* allocate(std::int64_t bytes, device::Queue queue) override;
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return device_.info().alignment_bytes; }
  ResourceStatistics stats() const noexcept override;
  std::string name() const override { return "arena"; }

  // Errors: InternalError naming the equation that does not hold.
  void check_invariants() const;

 private:
  struct Pending {
    SegmentId segment;
    device::Event event;
  };
  void reap_done() noexcept;
  bool wait_for_oldest() noexcept;

  device::Device& device_;
  std::byte* base_;
  mutable std::mutex mutex_;
  RangeAllocator ranges_;                               // guarded by mutex_
  std::unordered_map<std::int64_t, SegmentId> in_use_;  // by offset; guarded by mutex_
  std::vector<Pending> pending_;                        // oldest first; guarded by mutex_
  ResourceStatistics stats_;                            // guarded by mutex_
};

}  // namespace plimsoll::pool
