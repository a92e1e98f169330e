// SPDX-License-Identifier: Apache-2.0
// The memory of the devices. Each has one file in memory, mapped twice:
//
//   device addresses   [ no access for anyone          ]   what data_ptr() says
//   alias              [ read and write                ]   what jobs use, at a constant distance
//
// so that the host's reading or writing through data_ptr() ends the process, at any time, and jobs
// run all the same. Blocks are reused by size on the stream they were freed on, at once, since
// what comes later on that stream comes after.
//
// Nouns: Block, DeviceMemory, DeviceAllocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "runtime.h"

namespace plimsoll::simgpu {

struct Block {
  std::byte* begin = nullptr;  // a device address
  std::size_t bytes = 0;
  c10::StreamId stream = 0;
  std::set<c10::StreamId> recorded;  // streams of this device that use it besides its own
};

// One device. Threads: safe. Lock order: its own, then the runtime's.
class DeviceMemory {
 public:
  DeviceMemory(c10::DeviceIndex device, std::int64_t capacity_bytes);

  // Errors: c10::OutOfMemoryError, after waiting for deferred frees and giving cached blocks back.
  std::byte* allocate(std::size_t requested, c10::StreamId stream);
  void free(std::byte* begin) noexcept;
  void record_stream(std::byte* begin, const c10::Stream& stream);
  void empty_cache();

  bool contains(const void* address) const;
  // Says whether [begin, begin + bytes) lies in one block somebody holds.
  bool is_live(const std::byte* begin, std::size_t bytes);
  // Where jobs find what has this device address.
  std::byte* alias(const void* address) const;

  MemoryCounts counts();
  void reset_peak();
  void set_capacity(std::int64_t bytes);

 private:
  struct Deferred {
    Block block;
    std::vector<Event> events;
  };

  std::byte* take(std::size_t bytes, c10::StreamId stream);
  std::size_t carve(std::size_t bytes);
  void give_back(const Block& block);
  // Frees what no other stream uses any more; with `waits`, all of it.
  void finish_deferred(bool waits);
  void finish_free(Block block, std::span<const VectorClock> finished) noexcept;
  void give_cache_back();
  void poison(const Block& block, std::string_view reason,
              std::span<const VectorClock> finished = {}) noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t requested);

  const c10::DeviceIndex device_;
  std::byte* addresses_ = nullptr;
  std::byte* alias_ = nullptr;
  int file_ = -1;

  std::mutex mutex_;  // guards what follows
  std::int64_t capacity_bytes_;
  std::map<std::byte*, Block> live_;
  std::map<std::pair<c10::StreamId, std::size_t>, std::vector<Block>> cached_;
  std::vector<Deferred> deferred_;
  std::map<std::size_t, std::size_t> holes_;  // offset, bytes; neighbours are joined
  std::int64_t cached_bytes_ = 0;
  std::int64_t deferred_bytes_ = 0;
  MemoryCounts counts_;
};

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  // On the current device and stream. Zero bytes are a null pointer.
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override {}
  void resetPeakStats(c10::DeviceIndex device) override;
};

DeviceMemory& device_memory(c10::DeviceIndex device);
// The device whose addresses include this one; null for host addresses.
DeviceMemory* memory_holding(const void* address);
void make_device_memories(std::int64_t capacity_bytes);

// Of this thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
c10::Stream exchange_current_stream(const c10::Stream& stream);

}  // namespace plimsoll::simgpu
