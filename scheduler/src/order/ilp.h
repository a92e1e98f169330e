// SPDX-License-Identifier: Apache-2.0
// The order as an integer linear program on the fused graph, solved by HiGHS.
#pragma once

#include "plimsoll/order/solve.h"

#include "stop.h"

namespace plimsoll::order {

// Fills order, peak, bound, fused_ops, ilp_variables and note of `result`, whose order and peak
// hold a first order. The bound is HiGHS' own, computed in floating point.
//
//   x[o,t] = 1: o has run by step t (never falls)        minimise M
//   y[v,t] = 1: storage v lives at step t                M >= base + sum bytes y + extra of o at t
//
// A variable is left out where the counts of ancestors and descendants decide it.
// Errors: InvalidArgument for more fused operators than options.ilp_ops.
// Source: "Iterative graph optimisation" for deep networks (ICCAD 2023, arXiv 2308.13898): fusion
// to a fixed point, then an ILP with topology-aware pruning. Changed: fused operators carry a hill,
// and the program starts from the greedy order.
void run_ilp(const Problem& problem, const Options& options, Stopper& stopper, Result& result);

}  // namespace plimsoll::order
