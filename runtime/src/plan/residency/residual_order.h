// SPDX-License-Identifier: Apache-2.0
// Orders by the scheduler's solver: of the graph as it is, and of what residency makes of it.
#pragma once

#include <vector>

#include "draft.h"
#include "problem.h"

namespace plimsoll::plan {

// An order whose peak is more than a hundredth below `problem`'s, or empty. Cost: bounded visits,
// see order/solve.h. Deterministic.
std::vector<graph::OpId> solve_order(const Problem& problem);

// Once bytes leave and come back, something else pins the peak. The draft's runs, copies and
// repetitions are written as a graph of their own, in which every instance is a storage; it is
// ordered anew, and the order of its first runs comes back; empty
// where its peak is not more than a hundredth lower.
std::vector<graph::OpId> solve_residual_order(const Problem& problem, const Draft& draft);

}  // namespace plimsoll::plan
