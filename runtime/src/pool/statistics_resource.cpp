// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/statistics_resource.h"

#include "pool/atomic_peak.h"

namespace plimsoll::pool {

void* StatisticsResource::allocate(std::int64_t bytes, device::Queue queue) {
  void* pointer = nullptr;
  try {
    pointer = upstream_.allocate(bytes, queue);
  } catch (...) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    throw;
  }
  if (pointer == nullptr) return nullptr;
  allocations_.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  live_blocks_.fetch_add(1, std::memory_order_relaxed);
  raise_peak(peak_bytes_, live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  return pointer;
}

void StatisticsResource::deallocate(void* pointer, std::int64_t bytes,
                                    device::Queue queue) noexcept {
  if (pointer == nullptr) return;
  upstream_.deallocate(pointer, bytes, queue);
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

ResourceStatistics StatisticsResource::stats() const noexcept {
  ResourceStatistics stats;
  stats.live_bytes = live_bytes_.load(std::memory_order_relaxed);
  stats.live_blocks = live_blocks_.load(std::memory_order_relaxed);
  stats.peak_bytes = peak_bytes_.load(std::memory_order_relaxed);
  stats.allocations = allocations_.load(std::memory_order_relaxed);
  stats.allocated_bytes = allocated_bytes_.load(std::memory_order_relaxed);
  stats.failures = failures_.load(std::memory_order_relaxed);
  return stats;
}

void StatisticsResource::reset_peak() noexcept {
  peak_bytes_.store(live_bytes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace plimsoll::pool
