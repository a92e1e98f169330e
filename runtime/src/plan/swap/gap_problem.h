// SPDX-License-Identifier: Apache-2.0
// The covering problem behind plan_swaps and swap_lower_bound.
//
// Nouns: Gap (the operators between two accesses of a storage), Version (the gaps between two
// writes, which share one copy out), row (an operator at which the budget can bind).
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/plan/access_sequence.h"

namespace plimsoll::plan::detail {

// A gap covers the unrolled positions [begin, end), begin in [0, n]; operator p mod n for each.
struct Gap {
  SwapStorageId storage;
  Lap lap = Lap::kThisStep;
  std::int64_t evict_after = 0;  // as SwapEviction
  std::int64_t needed_at = 0;    // as SwapEviction
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size_bytes = 0;
  std::int64_t in_bytes = 0;
  std::int32_t version = 0;
};

// Gaps [first_gap, last_gap), in the order in which they follow the write; the first evicted pays
// out_bytes.
struct Version {
  std::int64_t out_bytes = 0;
  std::int32_t first_gap = 0;
  std::int32_t last_gap = 0;
};

struct GapProblem {
  std::int64_t op_count = 0;
  std::vector<std::int64_t> alive_bytes;      // per operator: all that lives, and scratch
  std::vector<std::int64_t> mandatory_bytes;  // per operator: what is touched or immovable, scratch
  std::vector<Gap> gaps;                      // grouped by version; none empty or of zero bytes
  std::vector<Version> versions;              // without those that have no gap

  // The least budget and the first operator that needs it.
  std::int64_t minimum_budget_bytes = 0;
  SwapOpId pinned_by;
};

// Cost: O(operators + accesses).
GapProblem make_gap_problem(const AccessSequence& sequence);

// Calls `visit(begin, end)` for each run of [0, count) that the unrolled range [begin, end) covers;
// a range longer than `count` covers a run more than once.
template <typename Visit>
void for_each_run(std::int64_t begin, std::int64_t end, std::int64_t count, Visit visit) {
  for (std::int64_t lap = 0; begin < end; ++lap) {
    const std::int64_t lap_end = (lap + 1) * count;
    if (begin >= lap_end) continue;
    const std::int64_t stop = end < lap_end ? end : lap_end;
    visit(begin - lap * count, stop - lap * count);
    begin = stop;
  }
}

// Adds to a per-operator sum over unrolled ranges, through differences.
class RangeSums {
 public:
  explicit RangeSums(std::int64_t count) : differences_(static_cast<std::size_t>(count) + 1) {}

  void add(std::int64_t begin, std::int64_t end, std::int64_t value) {
    const auto count = static_cast<std::int64_t>(differences_.size()) - 1;
    for_each_run(begin, end, count, [&](std::int64_t first, std::int64_t last) {
      differences_[static_cast<std::size_t>(first)] += value;
      differences_[static_cast<std::size_t>(last)] -= value;
    });
  }
  std::vector<std::int64_t> sums() const {
    std::vector<std::int64_t> result(differences_.begin(), differences_.end() - 1);
    for (std::size_t i = 1; i < result.size(); ++i) result[i] += result[i - 1];
    return result;
  }

 private:
  std::vector<std::int64_t> differences_;
};

// A gap reduced to the rows that matter. Rows [begin, end) are unrolled like positions.
struct CoverGap {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int64_t size_bytes = 0;
  std::int64_t in_bytes = 0;
  std::int32_t version = 0;
  std::int32_t source = 0;  // index into GapProblem::gaps
};

// Choose gaps so that in every row the chosen ones that cover it sum to at least its deficit.
struct CoverProblem {
  std::vector<std::int64_t> deficit_bytes;  // per row, > 0
  std::vector<std::int32_t> row_op;         // row -> operator
  std::vector<CoverGap> gaps;               // grouped by version; each covers a row
  std::vector<Version> versions;

  std::int32_t row_count() const { return static_cast<std::int32_t>(deficit_bytes.size()); }
};

// Keeps the operators over budget that no neighbour implies: of two operators without a gap that
// begins between them, the later is covered by a subset of the earlier's gaps, so where its deficit
// is not smaller it implies the earlier; and the mirror image.
// Cost: O(operators + gaps).
CoverProblem make_cover_problem(const GapProblem& problem, std::int64_t budget_bytes);

}  // namespace plimsoll::plan::detail
