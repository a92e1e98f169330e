// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/explain/explanation.h"

#include <algorithm>
#include <map>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout.h"

#include "explain/address_ranges.h"

namespace plimsoll::explain {
namespace {

const std::vector<TraceEvent>& trace_of(const Snapshot& snapshot, std::int32_t device) {
  static const std::vector<TraceEvent> kNoTrace;
  const auto index = static_cast<std::size_t>(device);
  return index < snapshot.traces.size() ? snapshot.traces[index] : kNoTrace;
}

// Applies an event to the segments, forwards or, to undo it, backwards.
void apply(const TraceEvent& event, AddressRanges& segments, bool forwards) {
  const Interval range{event.address, event.address + event.bytes};
  const bool joins =
      event.action == TraceAction::kSegmentMap || event.action == TraceAction::kSegmentUnmap;
  const bool adds =
      event.action == TraceAction::kSegmentAllocate || event.action == TraceAction::kSegmentMap;
  const bool removes =
      event.action == TraceAction::kSegmentFree || event.action == TraceAction::kSegmentUnmap;
  if (!adds && !removes) return;
  if (adds == forwards)
    segments.add(range, joins);
  else
    segments.remove(range);
}

// The segments as they stood before the trace: what the snapshot holds, with the trace undone.
AddressRanges segments_before(const Snapshot& snapshot, std::int32_t device) {
  AddressRanges segments;
  for (const SnapshotSegment& segment : snapshot.segments)
    if (segment.device == device)
      segments.add({segment.address, segment.address + segment.total_bytes}, false);
  const std::vector<TraceEvent>& trace = trace_of(snapshot, device);
  for (auto event = trace.rbegin(); event != trace.rend(); ++event) apply(*event, segments, false);
  return segments;
}

void follow_allocated(Explanation& result, std::int64_t alignment) {
  const std::size_t moments = std::max<std::size_t>(1, static_cast<std::size_t>(result.events));
  std::vector<std::int64_t> change(moments + 1, 0);
  std::vector<std::int64_t> rounded(moments + 1, 0);
  for (const BlockLife& life : result.lives) {
    const auto begin = static_cast<std::size_t>(life.time.begin);
    const auto end = static_cast<std::size_t>(life.time.end);
    const std::int64_t bytes = align_up(life.bytes, alignment);
    change[begin] = checked_add(change[begin], life.bytes);
    rounded[begin] = checked_add(rounded[begin], bytes);
    change[end] -= life.bytes;
    rounded[end] -= bytes;
  }
  std::int64_t live = 0;
  std::int64_t load = 0;
  result.peak_allocated_bytes = -1;
  for (std::size_t moment = 0; moment < moments; ++moment) {
    live = checked_add(live, change[moment]);
    load = checked_add(load, rounded[moment]);
    result.allocated_after.push_back(live);
    result.load_bytes = std::max(result.load_bytes, load);
    if (live > result.peak_allocated_bytes) {
      result.peak_allocated_bytes = live;
      result.peak_event = static_cast<std::int64_t>(moment);
    }
  }
}

void describe_segments(const AddressRanges& segments, Explanation& result) {
  std::map<std::int64_t, std::int64_t> blocks;  // alive at the peak, by address
  for (const BlockLife& life : result.lives)
    if (life.time.contains(result.peak_event)) blocks.emplace(life.address, life.bytes);
  for (const auto& [begin, end] : segments.ends()) {
    SegmentAtPeak segment{{begin, end}, 0, 0, 0};
    std::int64_t filled = begin;
    for (auto block = blocks.lower_bound(begin); block != blocks.end() && block->first < end;
         ++block) {
      segment.largest_hole_bytes = std::max(segment.largest_hole_bytes, block->first - filled);
      filled = std::max(filled, std::min(end, block->first + block->second));
      segment.allocated_bytes += std::min(end, block->first + block->second) - block->first;
      ++segment.blocks;
    }
    segment.largest_hole_bytes = std::max(segment.largest_hole_bytes, end - filled);
    result.segments.push_back(segment);
  }
  std::stable_sort(result.segments.begin(), result.segments.end(),
                   [](const SegmentAtPeak& a, const SegmentAtPeak& b) {
                     return a.free_bytes() > b.free_bytes();
                   });
}

void follow_segments(const Snapshot& snapshot, Explanation& result) {
  AddressRanges segments = segments_before(snapshot, result.device);
  result.peak_reserved_bytes = segments.total_bytes();
  const std::vector<TraceEvent>& trace = trace_of(snapshot, result.device);
  const auto note = [&](std::int64_t moment) {
    result.reserved_after.push_back(segments.total_bytes());
    result.peak_reserved_bytes = std::max(result.peak_reserved_bytes, segments.total_bytes());
    if (moment != result.peak_event) return;
    result.reserved_at_peak_bytes = segments.total_bytes();
    describe_segments(segments, result);
  };
  if (trace.empty()) note(0);
  for (std::size_t moment = 0; moment < trace.size(); ++moment) {
    apply(trace[moment], segments, true);
    note(static_cast<std::int64_t>(moment));
  }
  result.fragmentation_bytes =
      std::max<std::int64_t>(0, result.reserved_at_peak_bytes - result.peak_allocated_bytes);
}

void group_by_stack(Explanation& result) {
  std::map<std::int32_t, StackAtPeak> stacks;
  for (const BlockLife& life : result.lives) {
    if (!life.time.contains(result.peak_event)) continue;
    StackAtPeak& stack = stacks[life.stack];
    stack.stack = life.stack;
    stack.bytes += life.bytes;
    ++stack.blocks;
  }
  for (const auto& [id, stack] : stacks) result.stacks.push_back(stack);
  std::stable_sort(result.stacks.begin(), result.stacks.end(),
                   [](const StackAtPeak& a, const StackAtPeak& b) { return a.bytes > b.bytes; });
}

void lay_out(Explanation& result, std::int64_t alignment) {
  plan::LayoutProblem problem;
  for (const BlockLife& life : result.lives) {
    plan::LayoutBuffer buffer;
    buffer.lifetime = life.time;
    buffer.size_bytes = align_up(life.bytes, alignment);
    buffer.alignment_bytes = alignment;
    problem.buffers.push_back(std::move(buffer));
  }
  const plan::LayoutResult layout = plan::solve_layout(problem);
  result.planned_offsets_bytes = layout.offsets_bytes;
  result.planned_arena_bytes = layout.arena_bytes();
}

std::int32_t busiest_device(const Snapshot& snapshot) {
  std::int32_t devices = static_cast<std::int32_t>(snapshot.traces.size());
  for (const SnapshotSegment& segment : snapshot.segments)
    devices = std::max(devices, segment.device + 1);
  std::int32_t busiest = 0;
  std::int64_t most = -1;
  for (std::int32_t device = 0; device < std::min(devices, 1024); ++device) {
    Explanation probe;
    probe.device = device;
    probe.events = static_cast<std::int64_t>(trace_of(snapshot, device).size());
    probe.lives = block_lives(snapshot, device);
    follow_allocated(probe, 1);
    if (probe.peak_allocated_bytes > most) {
      most = probe.peak_allocated_bytes;
      busiest = device;
    }
  }
  return busiest;
}

bool has_device(const Snapshot& snapshot, std::int32_t device) {
  if (!trace_of(snapshot, device).empty()) return true;
  return std::any_of(snapshot.segments.begin(), snapshot.segments.end(),
                     [&](const SnapshotSegment& segment) { return segment.device == device; });
}

}  // namespace

Explanation explain(const Snapshot& snapshot, const ExplainOptions& options) {
  Explanation result;
  result.device = options.device >= 0 ? options.device : busiest_device(snapshot);
  if (options.device >= 0 && !has_device(snapshot, options.device))
    throw InvalidArgument(fmt::format("the snapshot says nothing about device {}", options.device));
  result.events = static_cast<std::int64_t>(trace_of(snapshot, result.device).size());
  result.lives = block_lives(snapshot, result.device);
  result.is_truncated =
      std::any_of(result.lives.begin(), result.lives.end(), [&](const BlockLife& life) {
        return life.begins_before_trace && life.time.end < result.events;
      });
  follow_allocated(result, options.alignment_bytes);
  follow_segments(snapshot, result);
  group_by_stack(result);
  lay_out(result, options.alignment_bytes);
  return result;
}

std::vector<std::string> format_stack(const Snapshot& snapshot, std::int32_t stack) {
  std::vector<std::string> lines;
  if (stack == kNoStack) return lines;
  for (const Frame& frame : snapshot.stacks[static_cast<std::size_t>(stack)])
    lines.push_back(fmt::format("{}:{}:{}", frame.file, frame.line, frame.function));
  return lines;
}

std::string plan_csv(const Explanation& explanation, std::int64_t alignment_bytes) {
  std::string csv = "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < explanation.lives.size(); ++i) {
    const BlockLife& life = explanation.lives[i];
    csv += fmt::format("{},{},{},{},{}\n", i, life.time.begin, life.time.end,
                       align_up(life.bytes, alignment_bytes), explanation.planned_offsets_bytes[i]);
  }
  return csv;
}

Snapshot planned_snapshot(const Snapshot& snapshot, const Explanation& explanation) {
  // Where CUDA's addresses tend to lie; any multiple of 2 MiB would do.
  constexpr std::int64_t kBase = std::int64_t{0x7f} << 40;
  struct Move {
    std::int64_t time;
    bool is_free;
    std::size_t life;
  };
  Snapshot planned;
  planned.stacks = snapshot.stacks;
  planned.traces.resize(static_cast<std::size_t>(explanation.device) + 1);
  SnapshotSegment segment{explanation.device, kBase, explanation.planned_arena_bytes, 0, true, {}};
  std::vector<TraceEvent>& trace = planned.traces.back();
  trace.push_back({TraceAction::kSegmentAllocate, kBase, segment.total_bytes, 0, 0, kNoStack});
  std::vector<Move> moves;
  const std::int64_t end = std::max<std::int64_t>(1, explanation.events);
  for (std::size_t i = 0; i < explanation.lives.size(); ++i) {
    const BlockLife& life = explanation.lives[i];
    if (life.time.empty() || life.bytes == 0) continue;
    moves.push_back({life.time.begin, false, i});
    if (life.time.end < end) {
      moves.push_back({life.time.end, true, i});
    } else {
      segment.blocks.push_back({kBase + explanation.planned_offsets_bytes[i], life.bytes,
                                life.bytes, BlockState::kAllocated, life.stack});
    }
  }
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return a.time != b.time ? a.time < b.time : a.is_free > b.is_free;
  });
  for (const Move& move : moves) {
    const BlockLife& life = explanation.lives[move.life];
    TraceEvent event{TraceAction::kAllocate,
                     kBase + explanation.planned_offsets_bytes[move.life],
                     life.bytes,
                     0,
                     move.time,
                     life.stack};
    if (move.is_free) {
      event.action = TraceAction::kFreeRequested;
      trace.push_back(event);
      event.action = TraceAction::kFreeCompleted;
    }
    trace.push_back(event);
  }
  std::sort(segment.blocks.begin(), segment.blocks.end(),
            [](const SnapshotBlock& a, const SnapshotBlock& b) { return a.address < b.address; });
  planned.segments.push_back(std::move(segment));
  return planned;
}

}  // namespace plimsoll::explain
