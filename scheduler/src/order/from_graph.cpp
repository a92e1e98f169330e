// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/from_graph.h"

#include <algorithm>

namespace plimsoll::order {
namespace {

using graph::OpId;
using graph::StorageId;

// Whether some toucher of `s` that is no birth comes right after `birth`, which then is never the
// last to touch it.
bool is_followed(const graph::Graph& graph, StorageId s, OpId birth) {
  const auto births = graph.births(s);
  const auto after = graph.successors(birth);
  return std::any_of(graph.touchers(s).begin(), graph.touchers(s).end(), [&](OpId toucher) {
    return !std::binary_search(births.begin(), births.end(), toucher) &&
           std::binary_search(after.begin(), after.end(), toucher);
  });
}

// The operators whose ends free a storage: its touchers, less the births that others always follow.
void add_reads(const graph::Graph& graph, StorageId s, ProblemInput& input) {
  const auto births = graph.births(s);
  const auto touchers = graph.touchers(s);
  for (const OpId toucher : touchers) {
    if (std::binary_search(births.begin(), births.end(), toucher)) {
      if (births.size() == 1 || is_followed(graph, s, toucher)) continue;
    }
    input.reads.emplace_back(s.value(), toucher.value());
  }
}

}  // namespace

Problem make_problem(const graph::Graph& graph) {
  ProblemInput input;
  input.ops = static_cast<std::int32_t>(graph.op_count());
  std::size_t touchers = 0;
  for (std::size_t i = 0; i < graph.storage_count(); ++i)
    touchers += graph.touchers(StorageId(i)).size();
  input.storages.reserve(graph.storage_count());
  input.births.reserve(graph.storage_count());
  input.reads.reserve(touchers);
  input.precedence.reserve(graph.edge_count() + touchers);  // build_problem adds one a read
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    input.storages.push_back({graph.size_bytes(s), graph.live_at_end(s)});
    for (const OpId birth : graph.births(s)) input.births.emplace_back(s.value(), birth.value());
    if (!graph.live_at_end(s)) add_reads(graph, s, input);
  }
  input.extra.reserve(graph.op_count());
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const OpId o(i);
    for (const OpId p : graph.predecessors(o)) input.precedence.emplace_back(p.value(), o.value());
    input.extra.push_back(graph.workspace_bytes(o));
    const StorageId over = graph.inplace_storage(o);
    if (over.valid() && !graph.live_at_end(over))
      input.overwrites.emplace_back(o.value(), over.value());
  }
  input.program.reserve(graph.op_count());
  for (const OpId o : graph.program_order()) input.program.push_back(o.value());
  return build_problem(std::move(input));
}

OrderResult solve(const graph::Graph& graph, const Options& options) {
  const Result found = solve(make_problem(graph), options);
  OrderResult result;
  result.order.reserve(found.order.size());
  for (const std::int32_t o : found.order) result.order.emplace_back(o);
  result.peak_bytes = found.peak_bytes;
  result.program_peak_bytes = found.program_peak_bytes;
  result.lower_bound_bytes = found.lower_bound_bytes;
  if (found.proof == Proof::kCut) result.proof = BoundProof::kCut;
  if (found.proof == Proof::kExhausted) result.proof = BoundProof::kExhausted;
  result.bound_op = OpId(found.bound_op);
  result.states = found.states;
  result.stopped_early = found.stopped_early;
  result.seconds = found.seconds;
  result.fused_ops = found.fused_ops;
  result.note = found.note;
  result.separators = found.separators;
  result.ilp_variables = found.ilp_variables;
  result.ilp_variables_pruned = found.ilp_variables_pruned;
  result.pinned_by.op = OpId(found.pinned_by.op);
  result.pinned_by.bytes = found.pinned_by.bytes;
  for (const std::int32_t s : found.pinned_by.storages) result.pinned_by.storages.emplace_back(s);
  return result;
}

}  // namespace plimsoll::order
