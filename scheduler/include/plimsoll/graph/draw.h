// SPDX-License-Identifier: Apache-2.0
// Pictures of a graph and of what its orders cost.
//
// Nouns: DrawnOrder, DrawingOptions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plimsoll/graph/graph.h"
#include "plimsoll/graph/memory.h"

namespace plimsoll::graph {

struct DrawnOrder {
  std::string label;  // such as "search" or "program order"
  OrderView order;
};

struct DrawingOptions {
  std::string title;
  std::int64_t lower_bound_bytes = -1;  // a dashed line; < 0: none
  std::int64_t budget_bytes = -1;       // a dotted line; < 0: none
};

// Graphviz: a box an op, an edge a dependency, labelled with the bytes that flow along it; dashed
// for anti, output and order edges. Deterministic. Cost: O(ops + edges).
std::string write_dot(const Graph& graph);

// The live bytes over the steps, one line an order, each with its peak marked and named; 2,000
// columns at most, each showing the highest step it covers. The first order is drawn on top.
// Errors: as memory_profile. Deterministic.
std::string write_svg(const Graph& graph, std::span<const DrawnOrder> orders,
                      const DrawingOptions& options = {});

// One self-contained page: the picture, the figures, and what is live at the peak of the first
// order. Errors: as memory_profile.
std::string write_html(const Graph& graph, std::span<const DrawnOrder> orders,
                       const DrawingOptions& options = {});

}  // namespace plimsoll::graph
