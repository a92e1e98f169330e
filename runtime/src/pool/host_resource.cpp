// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/host_resource.h"

#include <bit>
#include <cstdlib>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

#include "pool/atomic_peak.h"

namespace plimsoll::pool {

HostResource::HostResource(std::int64_t alignment_bytes) : alignment_bytes_(alignment_bytes) {
  if (alignment_bytes < 1 || !std::has_single_bit(static_cast<std::uint64_t>(alignment_bytes)))
    throw InvalidArgument(
        fmt::format("an alignment of {} bytes is no power of two", alignment_bytes));
  if (alignment_bytes_ < static_cast<std::int64_t>(sizeof(void*)))
    alignment_bytes_ = static_cast<std::int64_t>(sizeof(void*));
}

void* HostResource::allocate(std::int64_t bytes, device::Queue) {
  if (bytes < 0) throw InvalidArgument(fmt::format("an allocation of {} bytes", bytes));
  if (bytes == 0) return nullptr;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, static_cast<std::size_t>(alignment_bytes_),
                     static_cast<std::size_t>(bytes)) != 0) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    throw DeviceOutOfMemory("the system has no memory",
                            {bytes, live_bytes_.load(std::memory_order_relaxed), 0, 0});
  }
  allocations_.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  live_blocks_.fetch_add(1, std::memory_order_relaxed);
  raise_peak(peak_bytes_, live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  return pointer;
}

void HostResource::deallocate(void* pointer, std::int64_t bytes, device::Queue) noexcept {
  if (pointer == nullptr) return;
  std::free(pointer);
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

ResourceStatistics HostResource::stats() const noexcept {
  ResourceStatistics stats;
  stats.live_bytes = live_bytes_.load(std::memory_order_relaxed);
  stats.live_blocks = live_blocks_.load(std::memory_order_relaxed);
  stats.peak_bytes = peak_bytes_.load(std::memory_order_relaxed);
  stats.allocations = allocations_.load(std::memory_order_relaxed);
  stats.allocated_bytes = allocated_bytes_.load(std::memory_order_relaxed);
  stats.failures = failures_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace plimsoll::pool
