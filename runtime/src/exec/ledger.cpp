// SPDX-License-Identifier: Apache-2.0
#include "exec/ledger.h"

#include <utility>

namespace plimsoll::exec::detail {

void Ledger::note(const std::shared_ptr<Recording>& recording, const void* pointer,
                  std::int64_t bytes, AllocationKey key) {
  const std::lock_guard guard(lock_);
  recording->step.blocks.push_back({key, bytes, kNeverFreed});
  blocks_[pointer] = {recording, recording->step.blocks.size() - 1};
  followed_.store(static_cast<std::int64_t>(blocks_.size()), std::memory_order_relaxed);
}

void Ledger::note_free(const void* pointer) noexcept {
  const std::lock_guard guard(lock_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end()) return;
  Recording& recording = *found->second.recording;
  if (!recording.is_closed) {
    std::int64_t now = recording.step.length();
    if (recording.successor) now += recording.successor->step.length();
    recording.step.blocks[found->second.block].death = now;
  }
  blocks_.erase(found);
  followed_.store(static_cast<std::int64_t>(blocks_.size()), std::memory_order_relaxed);
}

void Ledger::succeed(const std::shared_ptr<Recording>& recording,
                     std::shared_ptr<Recording> successor) {
  const std::lock_guard guard(lock_);
  recording->successor = std::move(successor);
}

RecordedStep Ledger::close(const std::shared_ptr<Recording>& recording) {
  const std::lock_guard guard(lock_);
  recording->is_closed = true;
  // The chain of successors must not grow with the number of steps.
  recording->successor.reset();
  return std::move(recording->step);
}

void Ledger::forget_closed() {
  const std::lock_guard guard(lock_);
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.recording->is_closed; });
  followed_.store(static_cast<std::int64_t>(blocks_.size()), std::memory_order_relaxed);
}

}  // namespace plimsoll::exec::detail
