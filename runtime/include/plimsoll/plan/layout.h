// SPDX-License-Identifier: Apache-2.0
// Static layout (dynamic storage allocation): lifetimes in, addresses out.
//
// Nouns: LayoutBuffer (a rectangle of time x bytes), LayoutArena (an address space), LayoutProblem,
// LayoutResult.
//
//     address
//       ^   +--------+            arena_bytes = highest top
//       |   |   b    |  +----+
//       |   +----+---+--+ c  |    load        = most live bytes at one time, a lower bound
//       |   | a  |      |    |
//       +---+----+------+----+--> time
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "plimsoll/base/interval.h"

namespace plimsoll::plan {

inline constexpr std::int64_t kNoOffset = -1;
inline constexpr std::int64_t kUnlimitedBytes = std::numeric_limits<std::int64_t>::max();

// A stretch of a buffer's life in which it keeps only a part of its bytes, such as while it is away
// on the host. `kept` is relative to the buffer's offset; empty means that nothing is kept.
struct LayoutGap {
  Interval time;
  Interval kept;
};

// One buffer. Live in [begin, end), frees before allocations at equal time. A buffer of zero bytes
// or with an empty lifetime occupies nothing and gets offset 0 (or its fixed one).
struct LayoutBuffer {
  Interval lifetime;
  std::int64_t size_bytes = 0;
  std::int64_t alignment_bytes = 1;             // offset is a multiple; any positive number
  std::int64_t fixed_offset_bytes = kNoOffset;  // must stand exactly here
  std::int64_t hint_offset_bytes = kNoOffset;   // tried first by the greedy stage, not binding
  std::int32_t arena = 0;                       // index into LayoutProblem::arenas
  std::vector<LayoutGap> gaps;                  // disjoint, inside the lifetime
};

// An address space that starts at 0.
struct LayoutArena {
  std::string name;
  std::int64_t capacity_bytes = kUnlimitedBytes;
};

// Addresses that nobody may use for a while ("pinned"): library workspaces, persistent blocks.
struct ReservedRange {
  std::int32_t arena = 0;
  Interval time;
  Interval addresses;
};

struct LayoutProblem {
  std::vector<LayoutBuffer> buffers;
  std::vector<LayoutArena> arenas{LayoutArena{}};
  std::vector<ReservedRange> reserved;
  std::vector<std::string> names;  // one a buffer, or empty
};

enum class LayoutStatus : std::uint8_t {
  kOptimal,     // no layout is lower (and it fits the capacity)
  kFeasible,    // fits the capacity; a lower one may exist
  kInfeasible,  // proved: nothing fits the capacity
  kUnknown,     // a limit was reached before anything that fits, or a proof, was found
};
// Returns "optimal", "feasible", "infeasible" or "unknown".
const char* layout_status_name(LayoutStatus status) noexcept;

enum class LayoutAlgorithm : std::uint8_t {
  kAuto,    // every stage
  kGreedy,  // the greedy suite alone
  kSearch,  // greedy, then exact search alone
  kLocal,   // greedy, then local search alone
};

// The switches of the exact search. None changes what it proves, only how many nodes that takes.
struct LayoutSearchRules {
  bool section_inference = true;  // raise a section's floor to the lowest offset left in it
  bool dominance = true;          // equal buffers in index order
  bool fail_first = true;         // branch where the fewest choices are
  bool decomposition = true;      // solve what empty cuts separate on its own
  bool memory = true;             // remember failed states (64-bit keys, checked by a second one)
  bool hatless = true;            // place at once what nothing has to stand on
};

struct LayoutOptions {
  LayoutAlgorithm algorithm = LayoutAlgorithm::kAuto;
  bool reductions = true;                // strips, cuts, scaling; off only for tests
  bool minimize = false;                 // go on below a capacity that is met
  std::int64_t node_limit = 20'000'000;  // of the exact search, all restarts together
  std::int64_t greedy_limit =
      400'000'000;                   // interval visits of the greedy suite; one run is always made
  std::int64_t local_limit = 2'000;  // repackings of the local search
  std::uint64_t seed = 1;
  LayoutSearchRules rules;
  // Polled every few thousand nodes; true ends the work with what there is. This is the only way a
  // clock gets in; results obtained under a stop check are marked by LayoutResult::was_stopped.
  std::function<bool()> should_stop;
};

struct LayoutArenaResult {
  std::int64_t load_bytes = 0;         // most live bytes at one time
  std::int64_t lower_bound_bytes = 0;  // >= load where fixed ranges or proofs raise it
  std::int64_t arena_bytes = 0;        // highest top of the layout returned
  LayoutStatus status = LayoutStatus::kOptimal;
};

struct LayoutResult {
  // One a buffer. Always a valid layout, also where it exceeds a capacity; empty only where fixed
  // offsets and reserved ranges contradict one another, so that none exists.
  std::vector<std::int64_t> offsets_bytes;
  std::vector<LayoutArenaResult> arenas;
  LayoutStatus status = LayoutStatus::kOptimal;  // the worst of the arenas
  std::int64_t nodes = 0;                        // visited by the exact search
  std::int64_t moves = 0;                        // made by the local search
  bool was_stopped = false;                      // should_stop ended it
  bool limit_reached = false;                    // a node or move limit ended a stage
  std::string method;                            // the stage that made the tallest arena's layout

  std::int64_t arena_bytes() const;        // over all arenas, summed
  std::int64_t load_bytes() const;         // likewise
  std::int64_t lower_bound_bytes() const;  // likewise
};

// Lays the buffers out: reductions, the greedy suite, canonical branch and bound, local search;
// each stage leaves a valid layout. Errors: InvalidArgument that names the buffer, the value and
// what would be right (negative sizes, alignments below 1, gaps outside of the lifetime or
// overlapping, unknown arenas, overflow). Cost: greedy O(n log n) for bounded fragmentation; the
// rest is bounded by the limits. Threads: pure; calls may run at once. Determinism: the same input
// and options give the same offsets, unless should_stop ended it (was_stopped). Source: Moffitt,
// "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS
// 2023 (canonical solutions, inference, dominance, decomposition). Changed: branching on one
// section of a valley instead of on the next buffer in offset order, fail-first choice of that
// section, remembered failures, targets below the capacity tried first.
LayoutResult solve_layout(const LayoutProblem& problem, const LayoutOptions& options = {});

// Checks what solve_layout checks. Errors: InvalidArgument.
void check_layout_problem(const LayoutProblem& problem);

// The most live bytes at one time in one arena, reserved ranges included. O(n log n).
std::int64_t layout_load_bytes(const LayoutProblem& problem, std::int32_t arena);

// Returns the problem with every alignment and size rounded up to a multiple of `alignment_bytes`
// (512 on CUDA). Errors: InvalidArgument for overflow or an alignment below 1.
LayoutProblem align_layout_problem(LayoutProblem problem, std::int64_t alignment_bytes);

}  // namespace plimsoll::plan
