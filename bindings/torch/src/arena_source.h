// SPDX-License-Identifier: Apache-2.0
// How a session answers LibTorch's allocations in place of the heap.
//
// Noun: ArenaSource.
#pragma once

#include <cstddef>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace plimsoll::detail {

// A memory arena that LibTorch's allocator for one device can be pointed at, for one thread or
// while an operator runs. Threads: all members are safe to call from any thread.
class ArenaSource {
 public:
  explicit ArenaSource(c10::Device device) : arena_device_(device) {}
  ArenaSource(const ArenaSource&) = delete;
  ArenaSource& operator=(const ArenaSource&) = delete;
  virtual ~ArenaSource() = default;

  const c10::Device& arena_device() const { return arena_device_; }
  // Returns memory for `bytes` > 0, aligned to 64 bytes. Errors: c10::OutOfMemoryError.
  virtual void* allocate(std::size_t bytes) = 0;
  // Takes back what allocate() gave.
  virtual void deallocate(void* address) noexcept = 0;
  // The block at this address is also used by this stream: nothing else uses its bytes before what
  // the stream has been given up to the block's end.
  virtual void record_stream(void* address, const c10::Stream& stream) = 0;

 private:
  const c10::Device arena_device_;
};

}  // namespace plimsoll::detail
