// SPDX-License-Identifier: Apache-2.0
// Noun: StatisticsResource, counts over any resource, with a peak that can be set back.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::pool {

// Counts sizes as asked for. Threads: safe where the upstream is; lock-free here.
class StatisticsResource final : public MemoryResource {
 public:
  explicit StatisticsResource(MemoryResource& upstream) : upstream_(upstream) {}
  void* allocate(std::int64_t bytes, device::Queue queue) override;
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return upstream_.alignment_bytes(); }
  ResourceStatistics stats() const noexcept override;
  std::string name() const override { return "statistics over " + upstream_.name(); }
  void reset_peak() noexcept;  // to what is live now

 private:
  MemoryResource& upstream_;
  std::atomic<std::int64_t> live_bytes_{0};
  std::atomic<std::int64_t> live_blocks_{0};
  std::atomic<std::int64_t> peak_bytes_{0};
  std::atomic<std::int64_t> allocations_{0};
  std::atomic<std::int64_t> allocated_bytes_{0};
  std::atomic<std::int64_t> failures_{0};
};

}  // namespace plimsoll::pool
