// SPDX-License-Identifier: Apache-2.0
#include "bounds.h"

#include <algorithm>
#include <limits>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

#include "choose.h"
#include "rung.h"

namespace plimsoll::plan {

using graph::Graph;
using graph::OpId;
using graph::StorageId;

namespace {

// Gaps up to which the linear relaxation is worth its time.
constexpr std::size_t kMostLinearGaps = 4000;

// An op with several results is counted for the largest alone: one run brings all of them back.
std::vector<double> least_drop_costs(const Problem& problem) {
  const Graph& graph = *problem.graph;
  std::vector<double> costs;
  for (const Gap& gap : problem.gaps) {
    double cost = 0;
    for (const OpId w : problem.writers[gap.storage.index()]) {
      StorageId largest;
      for (const graph::ValueId v : graph.results(w)) {
        const StorageId s = graph.storage(v);
        if (!largest.valid() || problem.bytes[s.index()] > problem.bytes[largest.index()])
          largest = s;
      }
      if (largest == gap.storage) cost += problem.cost_ns[w.index()];
    }
    costs.push_back(problem.expiry[gap.storage.index()] >= gap.to
                        ? cost
                        : std::numeric_limits<double>::infinity());
  }
  return costs;
}

// What crosses each position and only a copy could bring back there.
std::vector<std::int64_t> held_across(const Problem& problem) {
  std::vector<std::int64_t> held(problem.order.size() + 1);
  for (const Gap& gap : problem.gaps) {
    const auto writers = problem.writers[gap.storage.index()];
    if (!writers.empty() && problem.graph->phase(writers[0]) == graph::Phase::kForward &&
        problem.expiry[gap.storage.index()] >= gap.to)
      continue;
    held[std::size_t(gap.from) + 1] += problem.bytes[gap.storage.index()];
    held[std::size_t(gap.to)] -= problem.bytes[gap.storage.index()];
  }
  for (std::size_t i = 1; i < held.size(); ++i) held[i] += held[i - 1];
  return held;
}

std::int64_t resident_bound(const Problem& problem) {
  const std::vector<std::int64_t> held = held_across(problem);
  const Graph& graph = *problem.graph;
  std::int64_t bound = problem.largest_op_bytes;
  for (std::size_t i = 0; i < problem.order.size(); ++i) {
    std::int64_t bytes = problem.pinned_bytes + held[i];
    for (const StorageId s : graph.touched(problem.order[i])) {
      const bool vanishes = graph.inplace_storage(problem.order[i]) == s &&
                            problem.last_use(s) == static_cast<std::int64_t>(i);
      if (problem.is_pinned[s.index()] == 0 && !vanishes) bytes += problem.bytes[s.index()];
    }
    bound = std::max(bound, std::min(bytes, problem.curve_bytes[i]));
  }
  return bound;
}

struct LargestOp {
  OpId op;
  std::int64_t bytes = 0;
};

constexpr std::size_t kMostInputs = 16;

// By op: the bytes of those inputs, not touched by it, that an op after it in every order reads.
std::vector<std::int64_t> inputs_needed_after(const Problem& problem) {
  const Graph& graph = *problem.graph;
  std::vector<StorageId> inputs;
  for (std::size_t i = 0; i < graph.storage_count(); ++i)
    if (problem.is_pinned[i] != 0 && !graph.live_at_end(StorageId(i))) inputs.emplace_back(i);
  std::stable_sort(inputs.begin(), inputs.end(), [&](StorageId a, StorageId b) {
    return problem.bytes[a.index()] > problem.bytes[b.index()];
  });
  if (inputs.size() > kMostInputs) inputs.resize(kMostInputs);  // a lower bound still
  std::vector<std::int64_t> bytes(graph.op_count());
  for (const StorageId s : inputs) {
    std::vector<std::uint8_t> touches(graph.op_count()), is_needed(graph.op_count());
    for (const OpId o : graph.touchers(s)) touches[o.index()] = is_needed[o.index()] = 1;
    for (std::size_t i = problem.order.size(); i-- > 0;) {
      const OpId o = problem.order[i];
      if (is_needed[o.index()] == 0) continue;
      for (const OpId before : graph.predecessors(o)) is_needed[before.index()] = 1;
      if (touches[o.index()] == 0) bytes[o.index()] += problem.bytes[s.index()];
    }
  }
  return bytes;
}

// In any order: what is there from the start to the end is there, and what is still to be read.
LargestOp largest_op(const Problem& problem) {
  const Graph& graph = *problem.graph;
  const auto stays = [&](StorageId s) {
    return problem.is_pinned[s.index()] != 0 && graph.live_at_end(s);
  };
  std::int64_t resident = 0;
  for (std::size_t i = 0; i < graph.storage_count(); ++i)
    if (stays(StorageId(i))) resident += problem.bytes[i];
  const std::vector<std::int64_t> inputs = inputs_needed_after(problem);
  LargestOp largest;
  for (const OpId o : problem.order) {
    std::int64_t bytes =
        resident + inputs[o.index()] +
        align_up(problem.workspace_bytes[o.index()], problem.device->alignment_bytes);
    for (const StorageId s : graph.touched(o)) {
      const bool vanishes = graph.inplace_storage(o) == s && !graph.live_at_end(s);
      if (!stays(s) && !vanishes) bytes += problem.bytes[s.index()];
    }
    if (largest.op.valid() && bytes <= largest.bytes) continue;
    largest = {o, bytes};
  }
  return largest;
}

}  // namespace

PlanBounds compute_bounds(const std::vector<Problem>& problems, CostSource source) {
  const Problem& program = problems.front();
  const Graph& graph = *program.graph;
  PlanBounds bounds;
  bounds.cost_source = source;
  bounds.stock_peak_bytes = program.stock_peak_bytes;
  bounds.stock_predicted_ns = program.total_ns;
  for (std::size_t i = 0; i < graph.storage_count(); ++i)
    if (graph.live_at_start(StorageId(i)) && graph.live_at_end(StorageId(i)))
      bounds.persistent_bytes += program.bytes[i];
  const LargestOp largest = largest_op(program);
  bounds.lower_bound_bytes = largest.bytes;
  if (largest.op.valid())
    bounds.pinned_by = fmt::format("op {} '{}' touches {} bytes at once, with what stays resident",
                                   largest.op.value(), graph.name(largest.op), largest.bytes);
  const Problem* best = &program;
  for (const Problem& problem : problems)
    if (problem.largest_op_bytes < best->largest_op_bytes) best = &problem;
  bounds.order_bound_bytes = best->largest_op_bytes;
  bounds.resident_bound_bytes = resident_bound(*best);
  return bounds;
}

double bound_time_ns(const std::vector<Problem>& problems, std::int64_t budget_bytes,
                     Policy policy) {
  double bound = std::numeric_limits<double>::infinity();
  for (const Problem& problem : problems) {
    double here = problem.total_ns;
    if (problem.peak_bytes > budget_bytes && problem.gaps.size() <= kMostLinearGaps) {
      const LinearChoice linear =
          choose_by_linear_program(problem, least_drop_costs(problem), budget_bytes,
                                   may_recompute(policy), may_offload(policy));
      if (linear.solved) here = std::max(here, linear.bound_ns);
    }
    bound = std::min(bound, here);
  }
  return bound;
}

}  // namespace plimsoll::plan
