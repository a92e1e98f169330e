// SPDX-License-Identifier: Apache-2.0
#include "memory_history.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plimsoll/explain/snapshot.h"

namespace plimsoll::detail {
namespace {

using explain::TraceAction;

// The heap beneath is not looked into: each block stands in a segment of its own.
class SnapshotBuilder {
 public:
  void add(const MemoryHistory::Event& event) {
    const std::int64_t address = address_of(event);
    const std::int32_t stack = stack_of(event);
    const auto append = [&](TraceAction action) {
      trace_.push_back({action, address, event.bytes, 0, event.time_us, stack});
    };
    if (event.is_free) {
      append(TraceAction::kFreeRequested);
      append(TraceAction::kFreeCompleted);
      append(TraceAction::kSegmentFree);
    } else {
      append(TraceAction::kSegmentAllocate);
      append(TraceAction::kAllocate);
    }
  }
  void add_live(const MemoryHistory::Event& block) {
    const std::int64_t address = address_of(block);
    explain::SnapshotSegment segment{0, address, block.bytes, 0, true, {}};
    segment.blocks.push_back(
        {address, block.bytes, block.bytes, explain::BlockState::kAllocated, stack_of(block)});
    snapshot_.segments.push_back(std::move(segment));
  }
  std::string write() {
    snapshot_.traces.push_back(std::move(trace_));
    return explain::write_snapshot(snapshot_);
  }

 private:
  static std::int64_t address_of(const MemoryHistory::Event& event) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(event.address));
  }
  // The operator is the frame, and what it was part of the one around it.
  std::int32_t stack_of(const MemoryHistory::Event& event) {
    const std::string part(allocation_kind_name(event.kind));
    const std::string name = event.operator_name[0] != '\0' ? event.operator_name : "user code";
    const auto [found, is_new] = stacks_.try_emplace(
        std::pair(part, name), static_cast<std::int32_t>(snapshot_.stacks.size()));
    if (is_new) snapshot_.stacks.push_back({{"operator", 0, name}, {"part", 0, part}});
    return found->second;
  }

  explain::Snapshot snapshot_;
  std::vector<explain::TraceEvent> trace_;
  std::map<std::pair<std::string, std::string>, std::int32_t> stacks_;
};

}  // namespace

void MemoryHistory::start(std::size_t most_events) {
  std::vector<Event>(most_events).swap(ring_);
  next_ = 0;
  is_full_ = false;
  begin_ = std::chrono::steady_clock::now();
}

void MemoryHistory::note(Event event) noexcept {
  event.time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                      std::chrono::steady_clock::now() - begin_)
                      .count();
  ring_[next_] = event;
  if (++next_ < ring_.size()) return;
  next_ = 0;
  is_full_ = true;
}

std::string MemoryHistory::write(std::vector<Event> live) const {
  SnapshotBuilder builder;
  if (is_full_)
    for (std::size_t i = next_; i < ring_.size(); ++i) builder.add(ring_[i]);
  for (std::size_t i = 0; i < next_; ++i) builder.add(ring_[i]);
  std::sort(live.begin(), live.end(),
            [](const Event& a, const Event& b) { return std::less<>()(a.address, b.address); });
  for (const Event& block : live) builder.add_live(block);
  return builder.write();
}

}  // namespace plimsoll::detail
