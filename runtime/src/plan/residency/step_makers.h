// SPDX-License-Identifier: Apache-2.0
// The two ways in which a layer net becomes a graph; see step_graph.h.
#pragma once

#include "plimsoll/plan/step_graph.h"

namespace plimsoll::plan {

graph::Graph make_paper_step(const LayerNet& net);
graph::Graph make_stock_step(const LayerNet& net, const StepGraphOptions& options);

// How many times the forward pass's operations the backward pass of a layer takes.
double backward_factor(LayerKind kind);

}  // namespace plimsoll::plan
