// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/swap_bound.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "cover_search.h"
#include "gap_problem.h"
#include "row_prices.h"
#include "swap_relaxation.h"

namespace plimsoll::plan {
namespace {

// Beyond, the linear program takes minutes, then hours.
constexpr std::size_t kMostGapsSolved = 30'000;

}  // namespace

SwapBound swap_lower_bound(const AccessSequence& sequence, std::int64_t budget_bytes) {
  const detail::GapProblem problem = detail::make_gap_problem(sequence);
  SwapBound bound{.minimum_budget_bytes = problem.minimum_budget_bytes,
                  .pinned_by = problem.pinned_by};
  bound.is_feasible = budget_bytes >= problem.minimum_budget_bytes;
  if (!bound.is_feasible) return bound;
  const detail::CoverProblem cover = detail::make_cover_problem(problem, budget_bytes);
  const bool is_solved = cover.gaps.size() <= kMostGapsSolved;
  if (const auto relaxed = is_solved ? detail::solve_relaxation(cover) : std::nullopt) {
    bound.bytes = detail::certified_bound(cover, relaxed->prices);
    const auto certified = static_cast<double>(bound.bytes);
    bound.is_tight = certified >= relaxed->value_bytes * (1 - 1e-6) - 1;
    if (bound.is_tight) return bound;
  }
  // Too large, or the solver gave up, or its prices lost too much when they were rounded.
  constexpr int kRounds = 2000;
  double all_bytes = 0;
  for (const detail::CoverGap& gap : cover.gaps)
    all_bytes += static_cast<double>(gap.in_bytes + gap.size_bytes);
  const detail::RowPrices prices = detail::price_rows(cover, all_bytes, kRounds);
  bound.bytes = std::max(bound.bytes, detail::certified_bound(cover, prices.prices));
  return bound;
}

}  // namespace plimsoll::plan
