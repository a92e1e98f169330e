// SPDX-License-Identifier: Apache-2.0
#include "temporary_memory.h"

#include <algorithm>

#include <c10/core/Allocator.h>

namespace plimsoll::simgpu {

// LibTorch reports every block to the profiler of the thread, which this pretends to be.
class TemporaryMemory::Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* pointer, std::int64_t bytes, std::size_t total_allocated,
                         std::size_t total_reserved, c10::Device device) override {
    if (!device.is_cpu()) return;
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

TemporaryMemory::TemporaryMemory()
    : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

std::int64_t TemporaryMemory::peak_bytes() const { return counter_->peak(); }

}  // namespace plimsoll::simgpu
