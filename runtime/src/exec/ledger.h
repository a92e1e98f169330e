// SPDX-License-Identifier: Apache-2.0
// Follows blocks from allocation to free while steps are recorded.
//
// Nouns: Recording, Ledger.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "plimsoll/exec/recorded_step.h"

namespace plimsoll::exec::detail {

// A step being recorded, or the one before it, whose late frees are still of interest.
// Guarded by the ledger's lock.
struct Recording {
  RecordedStep step;
  std::shared_ptr<const Recording> successor;  // the step that runs now, once this one has ended
  bool is_closed = false;                      // deaths no longer matter
};

// Which recording each live block belongs to. Threads: safe. Cost: a lock and a hash look-up for
// blocks that are being followed; one relaxed load where none is.
class Ledger {
 public:
  // Appends a block to the recording, whose owner calls this.
  void note(const std::shared_ptr<Recording>& recording, const void* pointer, std::int64_t bytes,
            AllocationKey key);
  // Notes that the block is dead. Unknown pointers are ignored.
  void note_free(const void* pointer) noexcept;
  bool is_empty() const noexcept { return followed_.load(std::memory_order_relaxed) == 0; }

  // Ends `recording` and lets `successor` run.
  void succeed(const std::shared_ptr<Recording>& recording, std::shared_ptr<Recording> successor);
  // Closes the recording and returns what it saw.
  RecordedStep close(const std::shared_ptr<Recording>& recording);
  // Forgets the blocks of closed recordings. Cost: O(followed blocks).
  void forget_closed();

 private:
  struct Followed {
    std::shared_ptr<Recording> recording;
    std::size_t block = 0;
  };
  std::mutex lock_;
  std::unordered_map<const void*, Followed> blocks_;  // guarded by lock_
  std::atomic<std::int64_t> followed_{0};
};

}  // namespace plimsoll::exec::detail
