// SPDX-License-Identifier: Apache-2.0
// How a session answers LibTorch's allocations in place of the heap.
//
// Noun: ArenaSource.
#pragma once

#include <cstddef>

namespace plimsoll::detail {

// A memory arena that LibTorch's CPU allocator can be pointed at, for one thread or while an
// operator runs. Threads: all members are safe to call from any thread.
class ArenaSource {
 public:
  ArenaSource() = default;
  ArenaSource(const ArenaSource&) = delete;
  ArenaSource& operator=(const ArenaSource&) = delete;
  virtual ~ArenaSource() = default;

  // Returns memory for `bytes` > 0, aligned to 64 bytes. Errors: c10::OutOfMemoryError.
  virtual void* allocate(std::size_t bytes) = 0;
  // Takes back what allocate() gave.
  virtual void deallocate(void* address) noexcept = 0;
};

}  // namespace plimsoll::detail
