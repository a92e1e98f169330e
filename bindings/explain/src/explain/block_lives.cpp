// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include "plimsoll/explain/explanation.h"

namespace plimsoll::explain {

std::vector<BlockLife> block_lives(const Snapshot& snapshot, std::int32_t device) {
  static const std::vector<TraceEvent> kNoTrace;
  const auto index = static_cast<std::size_t>(device);
  const std::vector<TraceEvent>& trace =
      index < snapshot.traces.size() ? snapshot.traces[index] : kNoTrace;
  // Without a trace everything lives for one moment.
  const std::int64_t end = std::max<std::int64_t>(1, static_cast<std::int64_t>(trace.size()));
  std::vector<BlockLife> lives;
  std::unordered_map<std::int64_t, std::size_t> open;  // address to index of the life
  for (std::int64_t time = 0; time < static_cast<std::int64_t>(trace.size()); ++time) {
    const TraceEvent& event = trace[static_cast<std::size_t>(time)];
    if (event.action == TraceAction::kAllocate) {
      // An address handed out twice: the free in between was not recorded.
      if (const auto lost = open.find(event.address); lost != open.end())
        lives[lost->second].time.end = time;
      open[event.address] = lives.size();
      lives.push_back({event.address, event.bytes, {time, end}, event.stream, event.stack, false});
    } else if (event.action == TraceAction::kFreeCompleted) {
      if (const auto life = open.find(event.address); life != open.end()) {
        lives[life->second].time.end = time;
        open.erase(life);
      } else {
        lives.push_back({event.address, event.bytes, {0, time}, event.stream, event.stack, true});
      }
    }
  }
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (segment.device != device) continue;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == BlockState::kInactive || open.contains(block.address)) continue;
      lives.push_back(
          {block.address, block.requested_bytes, {0, end}, segment.stream, block.stack, true});
    }
  }
  std::stable_sort(lives.begin(), lives.end(), [](const BlockLife& a, const BlockLife& b) {
    return a.time.begin != b.time.begin ? a.time.begin < b.time.begin : a.address < b.address;
  });
  return lives;
}

}  // namespace plimsoll::explain
