// SPDX-License-Identifier: Apache-2.0
#include "cover_search.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "cover_state.h"
#include "row_prices.h"
#include "swap_relaxation.h"

namespace plimsoll::plan::detail {
namespace {

using GapOrder = std::vector<std::int32_t>;

// Gaps by rising key; equal ones by index.
GapOrder order_by(const std::vector<double>& keys) {
  GapOrder order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int32_t gap) {
    return std::pair(keys[static_cast<std::size_t>(gap)], gap);
  });
  return order;
}

// Takes gaps in this order where they help, until all is covered; then drops what the later ones
// made needless, the least wanted first.
void cover_in_order(const GapOrder& order, CoverState& state) {
  for (const std::int32_t gap : order) {
    if (state.is_cover()) break;
    if (!state.is_chosen(gap) && state.helps(gap)) state.choose(gap);
  }
  for (auto gap = order.rbegin(); gap != order.rend(); ++gap)
    if (state.is_chosen(*gap) && state.can_drop(*gap)) state.drop(*gap);
}

// Bytes moved per byte and unit of price that a gap relieves. A version's copy out counts in full
// for each of its gaps unless together they are worth it anyway.
std::vector<double> rates(const CoverProblem& problem, const std::vector<double>& prices) {
  const std::vector<double> relief = reliefs(problem, prices);
  std::vector<double> result(problem.gaps.size());
  for (const Version& version : problem.versions) {
    double worth = 0;
    const auto first = static_cast<std::size_t>(version.first_gap);
    const auto last = static_cast<std::size_t>(version.last_gap);
    const auto gain = [&](std::size_t g) {
      const CoverGap& gap = problem.gaps[g];
      return std::max(
          0.0, static_cast<double>(gap.size_bytes) * relief[g] - static_cast<double>(gap.in_bytes));
    };
    for (std::size_t g = first; g < last; ++g) worth += gain(g);
    for (std::size_t g = first; g < last; ++g) {
      const CoverGap& gap = problem.gaps[g];
      const double others = worth - gain(g);
      const double out = std::max(0.0, static_cast<double>(version.out_bytes) - others);
      const double cost = static_cast<double>(gap.in_bytes) + out;
      result[g] = cost / (static_cast<double>(gap.size_bytes) * (relief[g] + 1e-12));
    }
  }
  return result;
}

void keep_better(CoverState& best, CoverState&& other) {
  if (other.cost_bytes() < best.cost_bytes()) best = std::move(other);
}

CoverState cover_by_keys(const CoverProblem& problem, const std::vector<double>& keys) {
  CoverState state(problem);
  cover_in_order(order_by(keys), state);
  return state;
}

// Tries the gaps by their rate at these prices, alone and together with how much of each gap the
// relaxation evicts.
void cover_by_guide(const CoverProblem& problem, const std::vector<double>& prices,
                    const std::vector<double>& fractions, CoverState& best) {
  std::vector<double> keys = rates(problem, prices);
  keep_better(best, cover_by_keys(problem, keys));
  // A rate of 1 pays exactly, 2 is as good as never.
  for (std::size_t g = 0; g < keys.size(); ++g) keys[g] = std::min(keys[g], 2.0) - fractions[g];
  keep_better(best, cover_by_keys(problem, keys));
}

}  // namespace

std::vector<char> search_cover(const CoverProblem& problem, const SwapOptions& options) {
  if (problem.row_count() == 0) return std::vector<char>(problem.gaps.size());
  // Without prices yet: every row counts by what it lacks.
  const std::vector<double> lacking(problem.deficit_bytes.begin(), problem.deficit_bytes.end());
  CoverState best = cover_by_keys(problem, rates(problem, lacking));
  if (options.effort == 0) return best.chosen();
  const RowPrices found =
      price_rows(problem, static_cast<double>(best.cost_bytes()), options.effort);
  cover_by_guide(problem, found.prices, found.fractions, best);
  if (static_cast<std::int64_t>(problem.gaps.size()) <= options.exact_prices_up_to_gaps)
    if (const auto exact = solve_relaxation(problem))
      cover_by_guide(problem, exact->prices, exact->fractions, best);
  return best.chosen();
}

}  // namespace plimsoll::plan::detail
