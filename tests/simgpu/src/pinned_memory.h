// SPDX-License-Identifier: Apache-2.0
// Host memory that copies may use while the host goes on. What is freed is filled with 0xFF and
// kept from reuse, so that a copy that is late shows in values and not as a damaged heap.
//
// Nouns: PinnedMemory, PinnedAllocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include <ATen/core/CachingHostAllocator.h>

#include "runtime.h"

namespace plimsoll::simgpu {

// Threads: safe. Lock order: its own, then the runtime's.
class PinnedMemory {
 public:
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* begin) noexcept;
  // A copy of LibTorch's on this stream uses the block that begins here; false for memory of
  // others.
  bool record(void* begin, void* context, const c10::Stream& stream);
  bool contains(const void* address);
  std::int64_t quarantined_bytes();
  // Gives all freed memory back, after waiting for the devices.
  void empty_quarantine();

 private:
  struct Range {
    std::size_t bytes = 0;
    std::vector<Event> users;
  };
  struct Freed {
    std::byte* begin = nullptr;
    Range range;
  };

  void finish_deferred();
  void retire(const Freed& freed, std::span<const VectorClock> finished) noexcept;

  std::mutex mutex_;  // guards what follows
  std::map<std::byte*, Range> live_;
  std::vector<Freed> deferred_;    // copies still use them
  std::deque<Freed> quarantined_;  // poisoned
  std::int64_t quarantined_bytes_ = 0;
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;
  bool record_event(void* pointer, void* context, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

PinnedMemory& pinned_memory();

}  // namespace plimsoll::simgpu
