// SPDX-License-Identifier: Apache-2.0
// What level 0 allocated and freed, and when, as a PyTorch memory snapshot.
//
// Noun: MemoryHistory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/allocator.h"

namespace plimsoll::detail {

// A ring of the newest events. Needs an external lock.
class MemoryHistory {
 public:
  struct Event {
    const void* address = nullptr;
    std::int64_t bytes = 0;
    const char* operator_name = "";  // lives for ever
    AllocationKind kind = AllocationKind::kOutside;
    bool is_free = false;
    std::int64_t time_us = 0;
  };

  // Keeps the newest `most_events` from now on; 0 stops and forgets. Takes all its memory here.
  // Errors: std::bad_alloc.
  void start(std::size_t most_events);
  bool is_recording() const noexcept { return !ring_.empty(); }
  // Never allocates. Only while recording.
  void note(Event event) noexcept;
  // The snapshot's bytes. `live` are the blocks alive now, allocations as in note().
  std::string write(std::vector<Event> live) const;

 private:
  std::vector<Event> ring_;
  std::size_t next_ = 0;
  bool is_full_ = false;
  std::chrono::steady_clock::time_point begin_;
};
static_assert(sizeof(MemoryHistory::Event) == 40);  // as allocator.h says

}  // namespace plimsoll::detail
