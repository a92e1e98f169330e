// SPDX-License-Identifier: Apache-2.0
// PyTorch's CUDA memory snapshot as a value, its reader and its writer.
//
// Nouns: Snapshot, SnapshotSegment, SnapshotBlock, TraceEvent, CallStack.
//
// torch.cuda.memory._dump_snapshot writes a pickled dictionary: `segments`, what the caching
// allocator holds now, and `device_traces`, for each device a ring buffer of what happened before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::explain {

struct Frame {
  std::string file;
  std::int64_t line = 0;
  std::string function;
  friend bool operator==(const Frame&, const Frame&) = default;
};
// Innermost first.
using CallStack = std::vector<Frame>;
inline constexpr std::int32_t kNoStack = -1;

enum class BlockState : std::uint8_t {
  kAllocated,    // "active_allocated"
  kPendingFree,  // "active_pending_free": freed, but a stream may still use it
  kInactive,     // "inactive"
};

struct SnapshotBlock {
  std::int64_t address = 0;
  std::int64_t size_bytes = 0;       // rounded, as the allocator keeps it
  std::int64_t requested_bytes = 0;  // as the program asked
  BlockState state = BlockState::kInactive;
  std::int32_t stack = kNoStack;
  friend bool operator==(const SnapshotBlock&, const SnapshotBlock&) = default;
};

struct SnapshotSegment {
  std::int32_t device = 0;
  std::int64_t address = 0;
  std::int64_t total_bytes = 0;
  std::int64_t stream = 0;
  bool is_large = true;               // segment_type
  std::vector<SnapshotBlock> blocks;  // ascending
  friend bool operator==(const SnapshotSegment&, const SnapshotSegment&) = default;
};

enum class TraceAction : std::uint8_t {
  kAllocate,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAllocate,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOutOfMemory,
  kSnapshot,
  kOther,  // of a release we do not know
};

struct TraceEvent {
  TraceAction action = TraceAction::kOther;
  std::int64_t address = 0;
  std::int64_t bytes = 0;  // as requested, for blocks
  std::int64_t stream = 0;
  std::int64_t time_us = 0;
  std::int32_t stack = kNoStack;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

struct Snapshot {
  std::vector<SnapshotSegment> segments;
  std::vector<std::vector<TraceEvent>> traces;  // by device
  std::vector<CallStack> stacks;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

// Reads the bytes of a snapshot; `file` names the origin in messages. Keys that are not known are
// passed over; older releases' blocks with `history` are read too.
// Cost: O(bytes); memory is bounded by a multiple of the file's size (see PickleDocument), also for
// files made to explode. Errors: InvalidFile with the byte offset: what PickleDocument refuses, a
// missing or mistyped key, negative sizes, objects shared so often that walking them is out of all
// proportion to the file.
Snapshot read_snapshot(std::string_view bytes, const std::string& file);

// Writes a snapshot (pickle, protocol 4) that torch.cuda._memory_viz and the viewer on the web
// accept. Gaps between a segment's blocks become inactive blocks, as the viewer wants blocks that
// tile. Errors: InvalidArgument where blocks overlap or leave their segment.
std::string write_snapshot(const Snapshot& snapshot);

}  // namespace plimsoll::explain
