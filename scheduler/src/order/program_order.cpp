// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "plimsoll/graph/memory.h"
#include "plimsoll/order/result.h"

namespace plimsoll::order {

using graph::Graph;
using graph::OpId;
using graph::StorageId;

std::string_view bound_proof_name(BoundProof proof) {
  switch (proof) {
    case BoundProof::kNone:
      return "trivial";
    case BoundProof::kCut:
      return "cut";
    case BoundProof::kExhausted:
      return "exhausted";
  }
  return "trivial";
}

OrderResult program_order(const Graph& graph) {
  OrderResult result;
  result.order.assign(graph.program_order().begin(), graph.program_order().end());
  result.peak_bytes = graph::peak_bytes(graph, result.order);
  result.lower_bound_bytes = trivial_bound(graph, &result.bound_op);
  return result;
}

std::int64_t trivial_bound(const Graph& graph, OpId* op) {
  const graph::MemoryState state(graph);
  std::int64_t bound = state.live_bytes();
  std::int64_t throughout = 0;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    if (!graph.live_at_end(s)) continue;
    end += graph.size_bytes(s);
    if (graph.live_at_start(s)) throughout += graph.size_bytes(s);
  }
  bound = std::max(bound, end);
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const OpId o(i);
    std::int64_t bytes = throughout + graph.workspace_bytes(o);
    for (const StorageId s : graph.touched(o)) {
      const bool counted = graph.live_at_end(s) && graph.live_at_start(s);
      const bool may_vanish = s == graph.inplace_storage(o) && !graph.live_at_end(s);
      if (!counted && !may_vanish) bytes += graph.size_bytes(s);
    }
    if (bytes <= bound) continue;
    bound = bytes;
    if (op != nullptr) *op = o;
  }
  return bound;
}

}  // namespace plimsoll::order
