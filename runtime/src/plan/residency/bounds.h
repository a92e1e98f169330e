// SPDX-License-Identifier: Apache-2.0
// What no plan can beat, in bytes and in time.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/plan/residency.h"

#include "problem.h"

namespace plimsoll::plan {

// Of one graph in several orders. `problems` is not empty. Cost: O(ops + touches) an order.
PlanBounds compute_bounds(const std::vector<Problem>& problems, CostSource source);

// The least time of any plan of one of the orders within the budget, by the linear relaxation over
// gap choices; where that does not close, the time of the ops alone.
double bound_time_ns(const std::vector<Problem>& problems, std::int64_t budget_bytes,
                     Policy policy);

}  // namespace plimsoll::plan
