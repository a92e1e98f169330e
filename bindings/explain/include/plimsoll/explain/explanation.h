// SPDX-License-Identifier: Apache-2.0
// What a memory snapshot says, and what a static plan would save.
//
// Nouns: BlockLife, Explanation.
//
//     trace (a ring buffer)     begin               peak            end
//       lost, before: |==== freed, never allocated: alive from the start
//                               |========|  allocated and freed (free_completed)
//                                     |=============|========|  alive at the end
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/base/interval.h"
#include "plimsoll/explain/snapshot.h"

namespace plimsoll::explain {

// One block's life. Times count the events of the device's trace.
struct BlockLife {
  std::int64_t address = 0;
  std::int64_t bytes = 0;  // as requested
  Interval time;
  std::int64_t stream = 0;
  std::int32_t stack = kNoStack;
  bool begins_before_trace = false;
};

// A segment as it stood at the peak.
struct SegmentAtPeak {
  Interval addresses;
  std::int64_t allocated_bytes = 0;
  std::int64_t blocks = 0;
  std::int64_t largest_hole_bytes = 0;
  std::int64_t free_bytes() const { return addresses.length() - allocated_bytes; }
};

struct StackAtPeak {
  std::int32_t stack = kNoStack;
  std::int64_t bytes = 0;
  std::int64_t blocks = 0;
};

struct Explanation {
  std::int32_t device = 0;
  std::int64_t events = 0;
  std::int64_t peak_event = 0;  // the first event after which most is allocated
  // True where frees without allocation show that the ring buffer has lost its beginning.
  bool is_truncated = false;
  std::int64_t peak_allocated_bytes = 0;  // sum of requested sizes
  std::int64_t peak_reserved_bytes = 0;   // most that all segments held, at any time
  std::int64_t reserved_at_peak_bytes = 0;
  std::int64_t fragmentation_bytes = 0;  // reserved at the peak, not allocated
  // What freeing at once needs whatever the addresses: the most live bytes at one time, each block
  // rounded up to the alignment. No plan of this order can do with less.
  std::int64_t load_bytes = 0;
  std::int64_t planned_arena_bytes = 0;
  std::vector<BlockLife> lives;                     // by begin, then address
  std::vector<std::int64_t> planned_offsets_bytes;  // one for each life
  std::vector<SegmentAtPeak> segments;              // most free bytes first
  std::vector<StackAtPeak> stacks;                  // most bytes first
  std::vector<std::int64_t> allocated_after;        // bytes, by event
  std::vector<std::int64_t> reserved_after;
};

struct ExplainOptions {
  std::int32_t device = -1;  // -1: the device with the highest peak
  std::int64_t alignment_bytes = 512;
};

// Explains one device of a snapshot. Pure. Cost: O(n log n) for n events and blocks, and the
// layout's. Errors: InvalidArgument for a device that the snapshot has nothing about, or sums that
// leave 64 bits.
Explanation explain(const Snapshot& snapshot, const ExplainOptions& options = {});

// The lives of one device's blocks, by begin, then address.
std::vector<BlockLife> block_lives(const Snapshot& snapshot, std::int32_t device);

// "file:line:function", one for each frame, innermost first.
std::vector<std::string> format_stack(const Snapshot& snapshot, std::int32_t stack);

// The same run as it would be under the plan: one segment, every block at its planned offset, for
// write_snapshot().
Snapshot planned_snapshot(const Snapshot& snapshot, const Explanation& explanation);

// The plan as CSV: id,lower,upper,size,offset, one line for each life.
std::string plan_csv(const Explanation& explanation, std::int64_t alignment_bytes);

// A page that needs nothing else: figures, timeline, segments at the peak, the plan, stacks.
std::string explanation_html(const Snapshot& snapshot, const Explanation& explanation,
                             const std::string& title);

}  // namespace plimsoll::explain
