// SPDX-License-Identifier: Apache-2.0
// Noun: PlannedResource, a MemoryResource that replays planned allocations over another one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "plimsoll/device/device.h"
#include "plimsoll/exec/replay_engine.h"
#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::exec {

struct PlannedResourceOptions {
  ReplayOptions replay;
  // The device whose queues use the memory, and the lock that its calls need. Null where all work
  // is done when the host goes on: a free on another queue then frees at once.
  device::Device* device = nullptr;
  std::mutex* device_lock = nullptr;
  // Counts live bytes and their peak. Costs shared atomic operations on every call; without it
  // stats() is all zero.
  bool count = true;
};

// Answers from the plan of the calling thread's lane, else from the upstream. A block freed on the
// queue it was allocated on is free for that lane at once; one freed on another queue only once
// that queue's present work is done. Where the upstream is out of memory meanwhile, such frees are
// waited for before the request is refused.
// Threads: safe. step_mark() speaks for the calling thread.
class PlannedResource final : public pool::MemoryResource {
 public:
  // The upstream, and the device, outlive this. Errors: InvalidArgument for a device without lock.
  explicit PlannedResource(pool::MemoryResource& upstream,
                           const PlannedResourceOptions& options = {});
  ~PlannedResource() override;

  void* allocate(std::int64_t bytes, device::Queue queue) override {
    return allocate_for(bytes, 0, queue);
  }
  // As allocate, with what asks for it. Errors: InvalidArgument for a negative size, those of the
  // upstream.
  void* allocate_for(std::int64_t bytes, AllocationKey key, device::Queue queue);
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return upstream_.alignment_bytes(); }
  pool::ResourceStatistics stats() const noexcept override;
  std::string name() const override { return "planned over " + upstream_.name(); }

  void step_mark() { engine_.step_mark(); }
  ReplayEngine& engine() { return engine_; }

 private:
  struct PendingFree {
    const void* pointer;
    device::Event event;
  };
  void* allocate_upstream(std::int64_t bytes, AllocationKey key, device::Queue queue);
  void free_across_queues(void* pointer, device::Queue queue) noexcept;
  void complete_frees(bool wait);
  void count_allocation(std::int64_t bytes);

  pool::MemoryResource& upstream_;
  const PlannedResourceOptions options_;
  ReplayEngine engine_;
  std::mutex pending_lock_;
  std::vector<PendingFree> pending_;  // guarded by pending_lock_
  std::atomic<std::int64_t> pending_count_{0};
  std::atomic<std::int64_t> live_bytes_{0}, live_blocks_{0}, peak_bytes_{0}, allocations_{0},
      allocated_bytes_{0}, failures_{0};
};

}  // namespace plimsoll::exec
