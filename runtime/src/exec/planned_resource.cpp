// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/exec/planned_resource.h"

#include <exception>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "plimsoll/base/error.h"

namespace plimsoll::exec {

PlannedResource::PlannedResource(pool::MemoryResource& upstream,
                                 const PlannedResourceOptions& options)
    : upstream_(upstream), options_(options), engine_(upstream, options.replay) {
  if (options.device != nullptr && options.device_lock == nullptr)
    throw InvalidArgument("a planned resource over a device needs the lock of the device's calls");
}

PlannedResource::~PlannedResource() { complete_frees(true); }

void* PlannedResource::allocate_for(std::int64_t bytes, AllocationKey key, device::Queue queue) {
  if (bytes < 0) [[unlikely]]
    throw InvalidArgument(fmt::format("an allocation of {} bytes: a size is not negative", bytes));
  if (bytes == 0) return nullptr;
  if (pending_count_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    complete_frees(false);
  void* place = engine_.try_allocate(bytes, key, queue);
  if (place == nullptr) [[unlikely]]
    place = allocate_upstream(bytes, key, queue);
  if (options_.count) count_allocation(bytes);
  return place;
}

void* PlannedResource::allocate_upstream(std::int64_t bytes, AllocationKey key,
                                         device::Queue queue) {
  try {
    void* place = upstream_.allocate(bytes, queue);
    engine_.note(place, bytes, key, queue);
    return place;
  } catch (const DeviceOutOfMemory&) {
    // The place planned for it may only be waiting for another queue.
    void* place = nullptr;
    if (pending_count_.load(std::memory_order_relaxed) != 0) {
      complete_frees(true);
      place = engine_.try_allocate(bytes, key, queue);
    }
    if (place != nullptr) return place;
    failures_.fetch_add(1, std::memory_order_relaxed);
    throw;
  }
}

void PlannedResource::deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept {
  if (pointer == nullptr) return;
  if (options_.count) {
    live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (options_.device != nullptr && engine_.owns(pointer) && engine_.queue_of(pointer) != queue)
    return free_across_queues(pointer, queue);
  if (!engine_.try_deallocate(pointer)) upstream_.deallocate(pointer, bytes, queue);
}

void PlannedResource::free_across_queues(void* pointer, device::Queue queue) noexcept {
  engine_.begin_free(pointer);
  try {
    device::Event event;
    {
      const std::lock_guard guard(*options_.device_lock);
      event = options_.device->record(queue);
    }
    const std::lock_guard guard(pending_lock_);
    pending_.push_back({pointer, event});
    pending_count_.store(static_cast<std::int64_t>(pending_.size()), std::memory_order_relaxed);
  } catch (const std::exception& error) {
    // Without an event nobody knows when the bytes are free: they stay where they are.
    spdlog::error("a block freed on another queue is lost to its plan: {}", error.what());
  }
}

void PlannedResource::complete_frees(bool wait) {
  const std::lock_guard guard(pending_lock_);
  std::erase_if(pending_, [&](const PendingFree& free) {
    if (wait) {
      try {
        options_.device->synchronize(free.event);
      } catch (const std::exception& error) {
        spdlog::error("a free on another queue ends with a failed queue: {}", error.what());
      }
    } else if (!options_.device->done(free.event)) {
      return false;
    }
    engine_.complete_free(free.pointer);
    return true;
  });
  pending_count_.store(static_cast<std::int64_t>(pending_.size()), std::memory_order_relaxed);
}

void PlannedResource::count_allocation(std::int64_t bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  live_blocks_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t live = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

pool::ResourceStatistics PlannedResource::stats() const noexcept {
  const auto get = [](const std::atomic<std::int64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  return {.live_bytes = get(live_bytes_),
          .live_blocks = get(live_blocks_),
          .peak_bytes = get(peak_bytes_),
          .allocations = get(allocations_),
          .allocated_bytes = get(allocated_bytes_),
          .failures = get(failures_)};
}

}  // namespace plimsoll::exec
