// SPDX-License-Identifier: Apache-2.0
// The search behind plan_swaps: a cheap set of gaps that covers every row.
#pragma once

#include <vector>

#include "plimsoll/plan/swap_plan.h"

#include "gap_problem.h"

namespace plimsoll::plan::detail {

// Returns per gap whether it is chosen. Every row can be covered (the budget is at least the
// minimum).
std::vector<char> search_cover(const CoverProblem& problem, const SwapOptions& options);

}  // namespace plimsoll::plan::detail
