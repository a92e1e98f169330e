// SPDX-License-Identifier: Apache-2.0
// From the graph to the solvers and back.
#pragma once

#include "plimsoll/graph/graph.h"
#include "plimsoll/order/problem.h"
#include "plimsoll/order/result.h"
#include "plimsoll/order/solve.h"

namespace plimsoll::order {

// Makes the flat form: operator i is OpId i, storage i is StorageId i, and every order has the
// peak that graph::peak_bytes gives it. O(size).
// Errors: InvalidArgument for 2^31 edges or more.
Problem make_problem(const graph::Graph& graph);

// Solves the graph and translates the result. Cost, errors and determinism as solve() of a problem.
OrderResult solve(const graph::Graph& graph, const Options& options);

}  // namespace plimsoll::order
