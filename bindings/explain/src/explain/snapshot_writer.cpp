// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/explain/pickle.h"
#include "plimsoll/explain/snapshot.h"

namespace plimsoll::explain {
namespace {

const char* action_name(TraceAction action) {
  switch (action) {
    case TraceAction::kAllocate:
      return "alloc";
    case TraceAction::kFreeRequested:
      return "free_requested";
    case TraceAction::kFreeCompleted:
      return "free_completed";
    case TraceAction::kSegmentAllocate:
      return "segment_alloc";
    case TraceAction::kSegmentFree:
      return "segment_free";
    case TraceAction::kSegmentMap:
      return "segment_map";
    case TraceAction::kSegmentUnmap:
      return "segment_unmap";
    case TraceAction::kOutOfMemory:
      return "oom";
    case TraceAction::kSnapshot:
    case TraceAction::kOther:
      return "snapshot";
  }
  return "snapshot";
}

const char* state_name(BlockState state) {
  switch (state) {
    case BlockState::kAllocated:
      return "active_allocated";
    case BlockState::kPendingFree:
      return "active_pending_free";
    case BlockState::kInactive:
      return "inactive";
  }
  return "inactive";
}

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const Snapshot& snapshot) : snapshot_(snapshot) {}

  std::string write() {
    out_.begin_dictionary();
    out_.text("segments");
    out_.begin_list();
    for (const SnapshotSegment& segment : snapshot_.segments) write_segment(segment);
    out_.end_list();
    out_.text("device_traces");
    out_.begin_list();
    for (const auto& trace : snapshot_.traces) {
      out_.begin_list();
      for (const TraceEvent& event : trace) write_event(event);
      out_.end_list();
    }
    out_.end_list();
    out_.text("allocator_settings");
    out_.begin_dictionary();
    out_.end_dictionary();
    out_.text("external_annotations");
    out_.begin_list();
    out_.end_list();
    out_.end_dictionary();
    return out_.finish();
  }

 private:
  void entry(std::string_view key, std::int64_t value) {
    out_.text(key);
    out_.integer(value);
  }
  void entry(std::string_view key, std::string_view value) {
    out_.text(key);
    out_.text(value);
  }
  void write_frames(std::int32_t stack) {
    out_.text("frames");
    if (const auto known = written_.find(stack); known != written_.end())
      return out_.repeat(known->second);
    out_.begin_list();
    written_.emplace(stack, out_.last_list());
    if (stack != kNoStack) {
      for (const Frame& frame : snapshot_.stacks[static_cast<std::size_t>(stack)]) {
        out_.begin_dictionary();
        entry("filename", frame.file);
        entry("line", frame.line);
        entry("name", frame.function);
        out_.end_dictionary();
      }
    }
    out_.end_list();
  }
  void write_block(const SnapshotBlock& block) {
    out_.begin_dictionary();
    entry("address", block.address);
    entry("size", block.size_bytes);
    entry("requested_size", block.requested_bytes);
    entry("state", state_name(block.state));
    write_frames(block.stack);
    out_.end_dictionary();
  }
  // Fills a hole, so that the blocks tile the segment.
  void write_hole(std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    write_block({begin, end - begin, 0, BlockState::kInactive, kNoStack});
  }
  void write_segment(const SnapshotSegment& segment) {
    std::int64_t allocated = 0;
    std::int64_t active = 0;
    std::int64_t requested = 0;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == BlockState::kInactive) continue;
      active += block.size_bytes;
      requested += block.requested_bytes;
      if (block.state == BlockState::kAllocated) allocated += block.size_bytes;
    }
    out_.begin_dictionary();
    entry("device", segment.device);
    entry("address", segment.address);
    entry("total_size", segment.total_bytes);
    entry("allocated_size", allocated);
    entry("active_size", active);
    entry("requested_size", requested);
    entry("stream", segment.stream);
    entry("segment_type", segment.is_large ? "large" : "small");
    out_.text("segment_pool_id");
    out_.begin_list();
    out_.integer(0);
    out_.integer(0);
    out_.end_list();
    out_.text("is_expandable");
    out_.boolean(false);
    write_frames(kNoStack);
    out_.text("blocks");
    out_.begin_list();
    std::int64_t end = segment.address;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.address < end)
        throw InvalidArgument(
            fmt::format("a snapshot's block at {} overlaps the one before, which ends at {}",
                        block.address, end));
      write_hole(end, block.address);
      write_block(block);
      end = block.address + block.size_bytes;
    }
    const std::int64_t segment_end = segment.address + segment.total_bytes;
    if (end > segment_end)
      throw InvalidArgument(
          fmt::format("a snapshot's blocks end at {}, their segment at {}", end, segment_end));
    write_hole(end, segment_end);
    out_.end_list();
    out_.end_dictionary();
  }
  void write_event(const TraceEvent& event) {
    out_.begin_dictionary();
    entry("action", action_name(event.action));
    if (event.action == TraceAction::kOutOfMemory) entry("device_free", event.address);
    entry("addr", event.address);
    entry("size", event.bytes);
    entry("stream", event.stream);
    entry("time_us", event.time_us);
    write_frames(event.stack);
    out_.end_dictionary();
  }

  const Snapshot& snapshot_;
  PickleWriter out_;
  std::unordered_map<std::int32_t, std::uint32_t> written_;
};

}  // namespace

std::string write_snapshot(const Snapshot& snapshot) { return SnapshotWriter(snapshot).write(); }

}  // namespace plimsoll::explain
