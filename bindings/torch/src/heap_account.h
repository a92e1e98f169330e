// SPDX-License-Identifier: Apache-2.0
// Level 0's account of what LibTorch's allocator for one device took from the heap, or from the
// device.
//
// Nouns: HeapAccount, Charge.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <c10/util/flat_hash_map.h>

#include "plimsoll/allocator.h"

#include "memory_history.h"

namespace plimsoll::detail {

// Counts blocks by address, knows what was live at the peak, and refuses what would pass the
// limit. Off (and free of cost but for one load) until enable().
// Threads: safe; one mutex, since the peak and its owners have to be exact.
class HeapAccount {
 public:
  void enable(const AllocatorOptions& options);
  AllocatorStatistics statistics() const;
  void reset();
  std::vector<PeakOwner> peak_owners(std::size_t most) const;
  void record_history(std::size_t most_events);
  std::string snapshot() const;

  // Counts a request before the heap is asked; commit() gives it its address, and without a
  // commit the destructor takes the count back, so that an exception leaves the account as it was.
  class Charge {
   public:
    // Errors: c10::OutOfMemoryError over the limit.
    Charge(HeapAccount& account, std::size_t bytes);
    ~Charge();
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;
    void commit(void* address);
    bool is_counted() const { return bytes_ > 0; }

   private:
    HeapAccount& account_;
    std::int64_t bytes_ = 0;  // rounded; 0 where nothing is counted or all is committed
    const char* operator_name_ = nullptr;
    AllocationKind kind_ = AllocationKind::kOutside;
  };
  // Forgets a block; unknown addresses (from before enable()) are ignored.
  void discharge(void* address) noexcept;

 private:
  struct Block {
    std::int64_t bytes;
    std::int64_t ordinal;
    const char* operator_name;  // interned, never freed
    AllocationKind kind;
  };
  void charge_locked(std::int64_t bytes, AllocationKind kind, const char* operator_name);

  std::atomic<bool> enabled_{false};
  mutable std::mutex mutex_;
  // All below are guarded by mutex_.
  AllocatorStatistics figures_;
  std::int64_t next_ordinal_ = 0;
  std::int64_t peak_ordinal_ = 0;  // blocks below it that are not in live_ were freed
  ska::flat_hash_map<void*, Block> live_;
  std::vector<Block> freed_since_peak_;  // those that were live at the peak
  MemoryHistory history_;
};

}  // namespace plimsoll::detail
