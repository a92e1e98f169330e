// SPDX-License-Identifier: Apache-2.0
#include "bounds.h"

#include <algorithm>
#include <limits>

#include <spdlog/fmt/fmt.h>

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
  const Problem* best = &program;
  for (const Problem& problem : problems)
    if (problem.largest_op_bytes < best->largest_op_bytes) best = &problem;
  bounds.lower_bound_bytes = best->largest_op_bytes;
  if (best->largest_op.valid())
    bounds.pinned_by =
        fmt::format("op {} '{}' touches {} bytes at once, with what cannot move",
                    best->largest_op.value(), graph.name(best->largest_op), best->largest_op_bytes);
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
