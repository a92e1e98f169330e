// SPDX-License-Identifier: Apache-2.0
// SERENITY: dynamic programming with adaptive soft budgeting, divide and conquer at cut nodes.
#pragma once

#include "plimsoll/order/solve.h"

#include "stop.h"

namespace plimsoll::order {

// Fills order, peak, bound, proof, separators, states and note of `result`, whose order and peak
// hold program order.
// Source: Ahn et al., "Ordering Chaos" (MLSys 2020), section 3 and its two algorithms, without the
// rewriting, which is a transformation of the graph. Changed: a step times out on its number of
// states, not on a clock, so that runs repeat; the budget stays between the highest that had no
// solution and the lowest that timed out, so that it ends where the paper's rule could go round;
// and where the two meet, the number of states doubles, until the time or the memory is used up.
// A part is not searched below what another part needs anyway.
void run_serenity(const Problem& problem, const Options& options, Stopper& stopper, Result& result);

}  // namespace plimsoll::order
