// SPDX-License-Identifier: Apache-2.0
// Noun: LimitedResource, a hard limit on what is live above another resource.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::pool {

// Sizes count rounded up to the upstream's alignment, which is what they cost. The bytes are
// reserved before memory is, so the limit holds at every moment and on every thread.
// Threads: safe where the upstream is; lock-free here. Cost: two atomic operations.
class LimitedResource final : public MemoryResource {
 public:
  // The upstream outlives this. `limit_bytes` > 0 (InvalidArgument).
  LimitedResource(MemoryResource& upstream, std::int64_t limit_bytes);
  void* allocate(std::int64_t bytes, device::Queue queue) override;
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return upstream_.alignment_bytes(); }
  ResourceStatistics stats() const noexcept override { return upstream_.stats(); }
  std::string name() const override { return "limit over " + upstream_.name(); }

  std::int64_t limit_bytes() const noexcept { return limit_bytes_; }
  std::int64_t charged_bytes() const noexcept { return charged_.load(std::memory_order_relaxed); }
  // Highest charged_bytes() since the last reset_peak().
  std::int64_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() noexcept { peak_.store(charged_bytes(), std::memory_order_relaxed); }

 private:
  MemoryResource& upstream_;
  std::int64_t limit_bytes_;
  std::atomic<std::int64_t> charged_{0};
  std::atomic<std::int64_t> peak_{0};
};

}  // namespace plimsoll::pool
