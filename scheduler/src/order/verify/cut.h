// SPDX-License-Identifier: Apache-2.0
// The checker's minimum cut.
#pragma once

#include <cstdint>

#include "plimsoll/graph/graph.h"

namespace plimsoll::order::detail {

// The fewest bytes live in any reachable state in which `o` runs (it has started and not ended).
// Every order passes such a state, so no order has a lower peak.
std::int64_t cheapest_state_running(const graph::Graph& graph, graph::OpId o);

}  // namespace plimsoll::order::detail
