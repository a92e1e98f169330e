// SPDX-License-Identifier: Apache-2.0
// The default solver: fusion, separators, budgeted search with jumps, cuts, and improvement.
#pragma once

#include "plimsoll/order/solve.h"

#include "stop.h"

namespace plimsoll::order {

// Fills order, peak, bound, proof, bound_op, separators, states of `result`, whose order and peak
// hold a first order. Every stage leaves a valid result.
void run_search(const Problem& problem, const Options& options, Stopper& stopper, Result& result);

}  // namespace plimsoll::order
