// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <vector>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/swap_plan.h"

#include "cover_search.h"
#include "gap_problem.h"

namespace plimsoll::plan {
namespace {

using detail::Gap;
using detail::GapProblem;

std::size_t slot(std::int64_t position, const GapProblem& problem) {
  return static_cast<std::size_t>(position % problem.op_count);
}

// The chosen gaps as evictions, with copies and sums.
void list_evictions(const GapProblem& problem, const std::vector<char>& is_evicted,
                    SwapPlan& plan) {
  detail::RangeSums freed(problem.op_count);
  for (const detail::Version& version : problem.versions) {
    bool is_clean = version.out_bytes == 0;
    for (std::int32_t g = version.first_gap; g < version.last_gap; ++g) {
      if (!is_evicted[static_cast<std::size_t>(g)]) continue;
      const Gap& gap = problem.gaps[static_cast<std::size_t>(g)];
      plan.evictions.push_back({.storage = gap.storage,
                                .lap = gap.lap,
                                .evict_after = gap.evict_after,
                                .needed_at = gap.needed_at,
                                .leave_before = gap.begin,
                                .return_from = gap.needed_at,
                                .copies_out = !is_clean,
                                .copies_in = gap.in_bytes > 0});
      if (!is_clean) plan.out_bytes += gap.size_bytes;
      plan.in_bytes += gap.in_bytes;
      is_clean = true;
      freed.add(gap.begin, gap.end, gap.size_bytes);
    }
  }
  plan.resident_bytes = problem.alive_bytes;
  const std::vector<std::int64_t> freed_bytes = freed.sums();
  for (std::size_t op = 0; op < freed_bytes.size(); ++op)
    plan.resident_bytes[op] -= freed_bytes[op];
  std::ranges::sort(plan.evictions, {}, [](const SwapEviction& eviction) {
    return std::tuple(eviction.evict_after, eviction.storage, eviction.lap);
  });
}

// Gives spare room to the evictions, so that copies overlap with operators: a few operators to
// each side in turn, the shortest waits first, so that no eviction takes all.
class OverlapWindows {
 public:
  OverlapWindows(const AccessSequence& sequence, const GapProblem& problem,
                 std::int64_t budget_bytes, const SwapPlan& plan)
      : sequence_(sequence), problem_(problem), spare_bytes_(plan.resident_bytes) {
    for (std::int64_t& spare : spare_bytes_) spare = budget_bytes - spare;
  }

  void widen(std::vector<SwapEviction>& evictions) {
    for (const std::int64_t reach : {2, 8, 32, 128})
      for (SwapEviction& eviction : evictions) {
        return_earlier(eviction, reach);
        leave_later(eviction, reach);
      }
  }

 private:
  void return_earlier(SwapEviction& eviction, std::int64_t reach) {
    if (eviction.needed_at == kNeverNeeded) return;
    while (eviction.return_from > eviction.leave_before &&
           eviction.needed_at - eviction.return_from < reach &&
           take(eviction.return_from - 1, eviction))
      --eviction.return_from;
  }

  void leave_later(SwapEviction& eviction, std::int64_t reach) {
    const StorageLife& life = sequence_.life(eviction.storage);
    std::int64_t end = eviction.return_from;
    if (eviction.needed_at == kNeverNeeded) {
      if (life.kind == StorageKind::kPersistent) return;
      end = life.death + 1 - (eviction.lap == Lap::kPreviousStep ? problem_.op_count : 0);
    }
    // It must be away for one operator at least: else the eviction were none.
    while (eviction.leave_before + 1 < end &&
           eviction.leave_before - eviction.evict_after <= reach &&
           take(eviction.leave_before, eviction))
      ++eviction.leave_before;
  }

  bool take(std::int64_t position, const SwapEviction& eviction) {
    const std::int64_t size = sequence_.life(eviction.storage).size_bytes;
    std::int64_t& spare = spare_bytes_[slot(position, problem_)];
    if (spare < size) return false;
    spare -= size;
    return true;
  }

  const AccessSequence& sequence_;
  const GapProblem& problem_;
  std::vector<std::int64_t> spare_bytes_;
};

}  // namespace

SwapPlan plan_swaps(const AccessSequence& sequence, std::int64_t budget_bytes,
                    const SwapOptions& options) {
  if (options.effort < 0) throw InvalidArgument("effort is negative; 0 is the least");
  const GapProblem problem = detail::make_gap_problem(sequence);
  SwapPlan plan;
  plan.minimum_budget_bytes = problem.minimum_budget_bytes;
  plan.pinned_by = problem.pinned_by;
  plan.is_feasible = budget_bytes >= plan.minimum_budget_bytes;
  if (!plan.is_feasible) return plan;
  const detail::CoverProblem cover = detail::make_cover_problem(problem, budget_bytes);
  const std::vector<char> chosen = detail::search_cover(cover, options);
  std::vector<char> is_evicted(problem.gaps.size());
  for (std::size_t g = 0; g < chosen.size(); ++g)
    is_evicted[static_cast<std::size_t>(cover.gaps[g].source)] = chosen[g];
  list_evictions(problem, is_evicted, plan);
  OverlapWindows(sequence, problem, budget_bytes, plan).widen(plan.evictions);
  return plan;
}

}  // namespace plimsoll::plan
