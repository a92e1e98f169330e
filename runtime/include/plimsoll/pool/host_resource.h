// SPDX-License-Identifier: Apache-2.0
// Noun: HostResource, plain host memory, the root that adaptors stand on.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::pool {

// Aligned memory of the C library. Errors: DeviceOutOfMemory where the system has none.
// Threads: safe, without a lock.
class HostResource final : public MemoryResource {
 public:
  explicit HostResource(std::int64_t alignment_bytes = 64);  // a power of two
  void* allocate(std::int64_t bytes, device::Queue queue) override;
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return alignment_bytes_; }
  ResourceStatistics stats() const noexcept override;
  std::string name() const override { return "host"; }

 private:
  std::int64_t alignment_bytes_;
  std::atomic<std::int64_t> live_bytes_{0};
  std::atomic<std::int64_t> live_blocks_{0};
  std::atomic<std::int64_t> peak_bytes_{0};
  std::atomic<std::int64_t> allocations_{0};
  std::atomic<std::int64_t> allocated_bytes_{0};
  std::atomic<std::int64_t> failures_{0};
};

}  // namespace plimsoll::pool
