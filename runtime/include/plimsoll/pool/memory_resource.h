// SPDX-License-Identifier: Apache-2.0
// The seam of plain allocation (level 0): memory by size and queue, no eviction.
//
// Nouns: MemoryResource, ResourceStatistics.
#pragma once

#include <cstdint>
#include <string>

#include "plimsoll/device/device.h"

namespace plimsoll::pool {

// Live and peak are as asked for by callers; totals since construction.
struct ResourceStatistics {
  std::int64_t live_bytes = 0;
  std::int64_t live_blocks = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t allocations = 0;
  std::int64_t allocated_bytes = 0;
  std::int64_t failures = 0;
};

// What any resource must do (the contract suite in tests/pool checks each):
// - allocate(0) returns null and counts nothing; a negative size is InvalidArgument;
// - memory is aligned to alignment_bytes(), disjoint from all other live memory, and may be used
//   on `queue` at once, on other queues after an event;
// - what does not fit is DeviceOutOfMemory with figures, state unchanged, and the next smaller
//   request works;
// - deallocate takes the same size; `queue`'s work submitted before it may still use the memory;
// - null is ignored by deallocate.
// Threads: safe, unless the resource says otherwise.
class MemoryResource {
 public:
  MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  virtual ~MemoryResource() = default;

  virtual void* allocate(std::int64_t bytes, device::Queue queue) = 0;
  virtual void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept = 0;
  virtual std::int64_t alignment_bytes() const noexcept = 0;
  virtual ResourceStatistics stats() const noexcept = 0;
  virtual std::string name() const = 0;
};

}  // namespace plimsoll::pool
