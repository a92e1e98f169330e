// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/explain/pickle.h"
#include "plimsoll/explain/snapshot.h"

namespace plimsoll::explain {
namespace {

constexpr std::array<std::pair<std::string_view, TraceAction>, 11> kActions{{
    {"alloc", TraceAction::kAllocate},
    {"free_requested", TraceAction::kFreeRequested},
    {"free_completed", TraceAction::kFreeCompleted},
    {"free", TraceAction::kFreeCompleted},
    {"segment_alloc", TraceAction::kSegmentAllocate},
    {"segment_free", TraceAction::kSegmentFree},
    {"segment_map", TraceAction::kSegmentMap},
    {"segment_unmap", TraceAction::kSegmentUnmap},
    {"oom", TraceAction::kOutOfMemory},
    {"snapshot", TraceAction::kSnapshot},
    {"workspace_snapshot", TraceAction::kOther},
}};

class SnapshotReader {
 public:
  SnapshotReader(const PickleDocument& document, std::size_t file_bytes)
      : document_(document), steps_left_(static_cast<std::int64_t>(file_bytes) * 64 + 4096) {}

  Snapshot read() {
    const PickleId root = document_.root();
    if (document_[root].kind != PickleKind::kDictionary)
      fail(root, "a memory snapshot is a dictionary with 'segments' and 'device_traces'");
    for (const PickleId segment : list(root, "segments")) read_segment(segment);
    if (const auto traces = find(root, "device_traces")) {
      for (const PickleId trace : elements(*traces, "device_traces")) {
        std::vector<TraceEvent>& events = snapshot_.traces.emplace_back();
        for (const PickleId event : elements(trace, "a device trace")) read_event(event, events);
      }
    }
    return std::move(snapshot_);
  }

 private:
  [[noreturn]] void fail(PickleId at, const std::string& problem) const {
    throw InvalidFile(document_.file(), fmt::format("byte {}", document_.position(at)), problem);
  }
  // Shared objects could make a small file huge to walk.
  void step(PickleId at, std::size_t count = 1) {
    steps_left_ -= static_cast<std::int64_t>(count);
    if (steps_left_ < 0) fail(at, "objects are shared out of all proportion to the file's size");
  }
  std::optional<PickleId> find(PickleId dictionary, std::string_view key) {
    const PickleValue& value = document_[dictionary];
    if (value.kind != PickleKind::kDictionary) fail(dictionary, "a dictionary is missing here");
    step(dictionary, value.children.size() / 2 + 1);
    for (std::size_t i = value.children.size(); i >= 2; i -= 2) {
      const PickleValue& name = document_[value.children[i - 2]];
      if (name.kind == PickleKind::kText && name.text == key) return value.children[i - 1];
    }
    return std::nullopt;
  }
  const std::vector<PickleId>& elements(PickleId id, std::string_view what) {
    if (document_[id].kind != PickleKind::kList) fail(id, fmt::format("{} is no list", what));
    step(id, document_[id].children.size() + 1);
    return document_[id].children;
  }
  const std::vector<PickleId>& list(PickleId dictionary, std::string_view key) {
    const auto found = find(dictionary, key);
    if (!found) fail(dictionary, fmt::format("the key '{}' is missing", key));
    return elements(*found, fmt::format("'{}'", key));
  }
  std::int64_t integer(PickleId dictionary, std::string_view key,
                       std::optional<std::int64_t> absent) {
    const auto found = find(dictionary, key);
    if (!found || document_[*found].kind == PickleKind::kNone) {
      if (absent) return *absent;
      fail(dictionary, fmt::format("the key '{}' is missing", key));
    }
    const PickleValue& value = document_[*found];
    if (value.kind != PickleKind::kInteger && value.kind != PickleKind::kBool)
      fail(*found, fmt::format("'{}' is no integer", key));
    return value.integer;
  }
  // Sizes and addresses leave room for sums.
  std::int64_t extent(PickleId dictionary, std::string_view key,
                      std::optional<std::int64_t> absent) {
    const std::int64_t value = integer(dictionary, key, absent);
    if (value < 0 || value > (std::int64_t{1} << 60))
      fail(dictionary, fmt::format("'{}' is {}; 0 to 2^60 are right", key, value));
    return value;
  }
  std::string_view text(PickleId dictionary, std::string_view key) {
    const auto found = find(dictionary, key);
    if (!found || document_[*found].kind != PickleKind::kText) return {};
    return document_[*found].text;
  }

  std::int32_t read_stack(PickleId owner) {
    const auto found = find(owner, "frames");
    if (!found || document_[*found].kind != PickleKind::kList) return kNoStack;
    if (const auto known = stack_ids_.find(*found); known != stack_ids_.end()) return known->second;
    CallStack stack;
    for (const PickleId frame : elements(*found, "'frames'")) {
      if (const auto known = frame_ids_.find(frame); known != frame_ids_.end()) {
        stack.push_back(known->second);
        charge_text(frame, known->second);
        continue;
      }
      if (document_[frame].kind != PickleKind::kDictionary) continue;
      Frame read{std::string(text(frame, "filename")), integer(frame, "line", 0),
                 std::string(text(frame, "name"))};
      charge_text(frame, read);
      frame_ids_.emplace(frame, read);
      stack.push_back(std::move(read));
    }
    std::int32_t id = kNoStack;
    if (!stack.empty()) {
      id = static_cast<std::int32_t>(snapshot_.stacks.size());
      snapshot_.stacks.push_back(std::move(stack));
    }
    stack_ids_.emplace(*found, id);
    return id;
  }
  void charge_text(PickleId at, const Frame& frame) {
    step(at, 1 + (sizeof(Frame) + frame.file.size() + frame.function.size()) / 8);
  }

  void read_segment(PickleId id) {
    SnapshotSegment segment;
    segment.device =
        static_cast<std::int32_t>(std::min<std::int64_t>(extent(id, "device", 0), 1 << 20));
    segment.address = extent(id, "address", std::nullopt);
    segment.total_bytes = extent(id, "total_size", std::nullopt);
    segment.stream = integer(id, "stream", 0);
    segment.is_large = text(id, "segment_type") != "small";
    std::int64_t address = segment.address;
    for (const PickleId block_id : list(id, "blocks")) {
      SnapshotBlock block;
      block.address = extent(block_id, "address", address);
      block.size_bytes = extent(block_id, "size", std::nullopt);
      block.requested_bytes = extent(block_id, "requested_size", block.size_bytes);
      const std::string_view state = text(block_id, "state");
      block.state = state == "active_allocated" ? BlockState::kAllocated
                    : state == "active_pending_free" || state == "active_awaiting_free"
                        ? BlockState::kPendingFree
                        : BlockState::kInactive;
      block.stack = read_stack(block_id);
      if (const auto history = find(block_id, "history"); history && block.stack == kNoStack) {
        const auto& entries = elements(*history, "'history'");
        if (!entries.empty()) {
          block.stack = read_stack(entries[0]);
          block.requested_bytes = extent(entries[0], "real_size", block.requested_bytes);
        }
      }
      address = block.address + block.size_bytes;
      segment.blocks.push_back(block);
    }
    snapshot_.segments.push_back(std::move(segment));
  }

  void read_event(PickleId id, std::vector<TraceEvent>& events) {
    TraceEvent event;
    const std::string_view action = text(id, "action");
    for (const auto& [name, known] : kActions)
      if (name == action) event.action = known;
    event.address = event.action == TraceAction::kOther ? 0 : extent(id, "addr", 0);
    event.bytes = event.action == TraceAction::kOther ? 0 : extent(id, "size", 0);
    event.stream = integer(id, "stream", 0);
    event.time_us = integer(id, "time_us", 0);
    event.stack = read_stack(id);
    events.push_back(event);
  }

  const PickleDocument& document_;
  std::int64_t steps_left_;
  Snapshot snapshot_;
  std::unordered_map<PickleId, std::int32_t> stack_ids_;
  std::unordered_map<PickleId, Frame> frame_ids_;
};

}  // namespace

Snapshot read_snapshot(std::string_view bytes, const std::string& file) {
  const PickleDocument document(bytes, file);
  return SnapshotReader(document, bytes.size()).read();
}

}  // namespace plimsoll::explain
