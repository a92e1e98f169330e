// SPDX-License-Identifier: Apache-2.0
// Lower bounds by min cut: what must live while one operator runs, whatever the order.
//
// Noun: CutBound.
//
// Every order passes a state in which operator o runs. In it the ancestors of o have run and its
// descendants have not; the cheapest choice for all others is an s-t cut:
//
//     ran         |        not yet             an operator that ran implies its ancestors;
//   a --> b --v1--|--> c                       the cost of a cut is the bytes of the storages
//     \-> d --v2--|--> o --> e                  that cross it: born on the left, read on the right
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plimsoll/order/problem.h"

namespace plimsoll::order {

struct CutBound {
  std::int32_t op = -1;
  std::int64_t bytes = 0;  // no order has a lower level while `op` runs
  bool exact = false;      // false: ended early, the bound is valid but may be low
  // Storages live in the cheapest state, o's results included, ascending (on request, if exact).
  std::vector<std::int32_t> storages;
};

struct CutOptions {
  bool with_storages = false;
  std::int64_t most_free_ops = -1;  // gives the bound of the fixed part alone above this; -1: none
  std::int64_t enough_bytes = -1;   // may end once the bound reaches this; -1: never
  std::function<bool()> stop;       // ends with a valid, lower bound
};

// Computes the bound for operator `op`. O(size) for the reach of `op`, then a maximum flow on the
// operators that are neither its ancestors nor its descendants. Deterministic without `stop`.
// Source: Picard and Queyranne, "Selected applications of minimum cuts in networks" (1982), for
// closures; Dinic (1970) for the flow.
CutBound cut_bound(const Problem& problem, std::int32_t op, const CutOptions& options);

}  // namespace plimsoll::order
