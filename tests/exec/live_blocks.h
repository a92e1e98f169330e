// SPDX-License-Identifier: Apache-2.0
// The independent checker of allocators, and memory to test them over.
//
// Nouns: LiveBlocks, TestMemory.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::exec::testing {

// Knows which blocks live, by address, and what was written to them. Shares no code with what it
// checks. Call add() right after an allocation and remove() right before a free. Threads: safe.
class LiveBlocks {
 public:
  // Notes a block; returns "" or what is wrong with it.
  std::string add(void* pointer, std::int64_t bytes, std::int64_t alignment);
  // Forgets a block; returns "" or what is wrong: unknown, or written to by someone else.
  std::string remove(void* pointer);
  std::int64_t live_bytes() const { return live_bytes_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Block {
    std::uintptr_t end;
    std::uint64_t stamp;
  };
  static void write_stamp(std::uintptr_t begin, const Block& block);
  static bool has_stamp(std::uintptr_t begin, const Block& block);
  std::mutex lock_;
  std::map<std::uintptr_t, Block> blocks_;
  std::uint64_t last_stamp_ = 0;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

// Host memory with a limit on what is live. Threads: safe.
class TestMemory final : public pool::MemoryResource {
 public:
  explicit TestMemory(std::int64_t alignment_bytes = 64, std::int64_t limit_bytes = INT64_MAX)
      : alignment_bytes_(alignment_bytes), limit_bytes_(limit_bytes) {}
  void* allocate(std::int64_t bytes, device::Queue queue) override;
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return alignment_bytes_; }
  pool::ResourceStatistics stats() const noexcept override;
  std::string name() const override { return "test"; }
  void set_limit(std::int64_t limit_bytes) { limit_bytes_ = limit_bytes; }

 private:
  std::int64_t alignment_bytes_;
  std::int64_t limit_bytes_;
  mutable std::mutex lock_;
  pool::ResourceStatistics stats_;
};

// A repeating program: requests in order, each freed after a number of further requests.
struct ProgramBlock {
  std::uint64_t key = 0;
  std::int64_t bytes = 0;
  std::int64_t lives_for = 1;  // in requests; may reach into the next step
};
using Program = std::vector<ProgramBlock>;

}  // namespace plimsoll::exec::testing
