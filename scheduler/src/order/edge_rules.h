// SPDX-License-Identifier: Apache-2.0
// The fusion rules that change edges and readers, not operators.
#pragma once

#include "plimsoll/order/fusion.h"
#include "plimsoll/order/problem.h"

namespace plimsoll::order {

// Applies the rules `readers`, `transitive` and `twins` once; returns whether anything changed.
// Paths are followed for a bounded number of steps, so a few long ones are missed. O(size).
bool drop_edges(Problem& problem, const FusionRules& rules);

}  // namespace plimsoll::order
