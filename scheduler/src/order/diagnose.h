// SPDX-License-Identifier: Apache-2.0
// What pins the peak: the operator and the storages that no order can separate.
#pragma once

#include <span>

#include "plimsoll/order/solve.h"

#include "stop.h"

namespace plimsoll::order {

// Fills bound_op and pinned_by of a result whose order and bound are final. `suspects` are tried
// first: the operators whose cut gave the bound. Where no cut of the problem itself equals the
// bound, the proof becomes kExhausted, and pinned_by holds the largest cut seen.
void diagnose(const Problem& problem, std::span<const std::int32_t> suspects, Stopper& stopper,
              Result& result);

}  // namespace plimsoll::order
