// SPDX-License-Identifier: Apache-2.0
#include "residual_order.h"

#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/order/from_graph.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;
using graph::ValueId;

namespace {

// Operator visits of the solver for each op.
constexpr std::int64_t kVisits = 400;

order::OrderResult solve_briefly(const graph::Graph& graph) {
  order::Options options;
  options.time_limit_seconds = -1;
  options.work_limit = kVisits * static_cast<std::int64_t>(graph.op_count());
  options.rules.min_cuts = false;
  options.rules.beam = false;
  options.rules.windows = false;
  return order::solve(graph, options);
}

// By enough to be worth a search of its own.
bool is_lower(std::int64_t peak, std::int64_t before) { return peak < before - before / 100; }

class ResidualGraph {
 public:
  ResidualGraph(const Problem& problem, const Draft& draft)
      : it_(problem), draft_(draft), present_(draft.instances.size()) {}

  graph::Graph make() {
    std::vector<InstanceId> last(it_.bytes.size());
    for (std::size_t i = 0; i < draft_.instances.size(); ++i)
      last[draft_.instances[i].index()] = InstanceId(i);
    for (std::size_t i = 0; i < draft_.instances.size(); ++i) {
      const StorageId s = draft_.instances[i];
      storages_.push_back(builder_.add_storage(
          {.size_bytes = it_.bytes[s.index()],
           .live_at_end = it_.graph->live_at_end(s) && last[s.index()] == InstanceId(i)}));
    }
    for (const InstanceId id : draft_.initial) write(id);
    std::vector<OpId> copied(it_.bytes.size());
    for (const DraftStep& step : draft_.steps) {
      if (step.kind == StepKind::kFree) continue;
      first_runs.push_back(step.kind == StepKind::kRun ? step.op : OpId());
      if (step.op.valid()) {
        add_op(step);
        continue;
      }
      OpId& copy = copied[draft_.instances[step.instance.index()].index()];
      if (step.kind == StepKind::kOffload) {
        copy = builder_.add_op({.kind = "offload", .operands = {present_[step.instance.index()]}});
      } else {
        graph::OpSpec spec{.kind = "prefetch", .results = {write(step.instance)}};
        if (copy.valid()) spec.after = {copy};
        builder_.add_op(spec);
      }
    }
    return builder_.build();
  }

  std::vector<OpId> first_runs;  // by op of the graph made: the op it runs first, or invalid

 private:
  ValueId write(InstanceId id) {
    const std::size_t i = id.index();
    return present_[i] = builder_.add_value({.storage = storages_[i], .overwrites = present_[i]});
  }
  void add_op(const DraftStep& step) {
    graph::OpSpec spec;
    spec.kind = it_.graph->kind(step.op);
    if (step.kind == StepKind::kRun)
      spec.flags = it_.graph->flags(step.op) & (graph::kRandom | graph::kSideEffect);
    const auto touches = it_.touches[step.op.index()];
    const auto touched = draft_.touched_of(step);
    for (std::size_t i = 0; i < touched.size(); ++i)
      if (touched[i].valid() && present_[touched[i].index()].valid())
        spec.operands.push_back(present_[touched[i].index()]);
    for (std::size_t i = 0; i < touched.size(); ++i) {
      if (!touched[i].valid() || !touches[i].writes) continue;
      spec.results.push_back(write(touched[i]));
      if (step.taken_over.valid() && touches[i].storage == heir_of(step.op)) {
        spec.inplace_operand = present_[step.taken_over.index()];
        spec.inplace_result = spec.results.back();
      }
    }
    spec.workspace_bytes = step.workspace_bytes;
    builder_.add_op(spec);
  }
  StorageId heir_of(OpId o) const { return it_.graph->storage(it_.graph->inplace_result(o)); }

  const Problem& it_;
  const Draft& draft_;
  graph::GraphBuilder builder_;
  std::vector<StorageId> storages_;
  std::vector<ValueId> present_;  // by instance: the version it holds; invalid: none yet
};

}  // namespace

std::vector<OpId> solve_order(const Problem& problem) {
  const order::OrderResult result = solve_briefly(*problem.graph);
  return is_lower(result.peak_bytes, graph::peak_bytes(*problem.graph, problem.order))
             ? result.order
             : std::vector<OpId>();
}

std::vector<OpId> solve_residual_order(const Problem& problem, const Draft& draft) {
  ResidualGraph residual(problem, draft);
  const graph::Graph graph = residual.make();
  const order::OrderResult result = solve_briefly(graph);
  if (!is_lower(result.peak_bytes, graph::peak_bytes(graph, graph.program_order()))) return {};
  std::vector<OpId> order;
  for (const OpId o : result.order)
    if (residual.first_runs[o.index()].valid()) order.push_back(residual.first_runs[o.index()]);
  // Repetitions may let an op go before another whose first result it no longer reads.
  std::vector<std::size_t> position(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) position[order[i].index()] = i;
  for (const OpId o : order)
    for (const OpId before : problem.graph->predecessors(o))
      if (position[before.index()] > position[o.index()]) return {};
  return order;
}

}  // namespace plimsoll::plan
