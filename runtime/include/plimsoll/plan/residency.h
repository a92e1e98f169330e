// SPDX-License-Identifier: Apache-2.0
// The residency planner: what stays, what goes to the host and what runs again, so that a step fits
// a budget and loses as little time as possible.
//
// Nouns: Policy, Planner, PlanReport.
//
// How `auto` works. A plan comes from decisions (one for every idle gap of every storage) by a
// replay that never holds more than its budget: it frees, copies and rebuilds as decided, and where
// that is not enough evicts what is cheapest to bring back for its bytes and farthest from its next
// use. For each of a fixed ladder of budgets (which do not depend on the one asked for) many
// decisions are tried: the best of the rung below, greedy mixes of offload and recomputation, what
// published policies choose, the rounded linear program; then flips of the copies that ops wait
// for, of groups and of single gaps, judged by an estimate of the simulated time. Orders are tried
// side by side. Blocks get addresses inside their rung's arena; where holes would not let them,
// some move. Where the step takes more than 1.2 times as long as without a limit, rungs are
// searched once more and longer, with the addresses in the loop, and for nothing faster than that.
// The answer to a budget is the fastest plan of all rungs up to it; rungs that cannot win get no
// addresses. So a larger budget never costs more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/plan/device_model.h"
#include "plimsoll/plan/plan.h"
#include "plimsoll/plan/simulate.h"

namespace plimsoll::plan {

enum class Policy : std::uint8_t {
  kAuto,
  kNone,               // nothing is freed before the end of the step
  kLiveness,           // freed after the last use, nothing moves
  kSuperNeurons,       // offload what dense and joining ops write, recompute the rest
  kRecomputeOnly,      // as auto, no copies
  kOffloadOnly,        // as auto, nothing runs again
  kOptimal,            // exact over plans in stages (a mixed-integer program); small graphs only
  kBaselineChen,       // keep every k-th storage, the best k (Chen et al. 2016)
  kBaselineDtr,        // evict on demand by the h heuristic (Kirisame et al., ICLR 2021)
  kBaselineCapuchin,   // longest idle first to the host, the rest recomputed (Peng et al. 2020)
  kBaselinePofo,       // a prefix to the host, the rest recomputed (Beaumont et al. 2021)
  kBaselineCheckmate,  // recomputation by a rounded linear program (Jain et al. 2020)
};
// "auto", "none", "liveness", "superneurons", "recompute-only", "offload-only", "optimal",
// "baseline-chen", "baseline-dtr", "baseline-capuchin", "baseline-pofo", "baseline-checkmate".
std::string_view policy_name(Policy policy);
// Errors: InvalidArgument listing the names.
Policy parse_policy(std::string_view name, std::string_view flag);
std::vector<Policy> all_policies();

struct PlannerOptions {
  Policy policy = Policy::kAuto;
  bool use_measured_costs = false;      // costs in the graph were measured on this device
  bool stream_optimizer_state = false;  // it lives on the host, fetched for each update
  bool early_updates = true;            // also try each update right after its gradient
  // Also try an order of least peak, and that of the tightest plan's own graph, in which other ops
  // pin the peak; for graphs of up to 4000 ops.
  bool reorder = true;
  std::int64_t workspace_cap_bytes = -1;  // of one op; -1: none
  // Simulated evaluations a rung may take; 0: by the size of the graph.
  int evaluations = 0;
  // Where the step takes more than 1.2 times as long as without a limit: search longer, up to a few
  // seconds.
  bool thorough = true;
};

struct PlanReport {
  Plan plan;
  Timeline timeline;
  std::string order_name;           // "program", "early updates", "least peak" or "re-solved"
  Policy found_by = Policy::kAuto;  // of `auto`: itself, or the rival whose plan is the fastest
  std::int64_t budget_bytes = 0;
  std::int64_t peak_bytes = 0;  // what the simulated device and the validator count, holes included
  std::int64_t arena_bytes = 0;  // after layout; equal to the peak, <= budget
  std::int64_t live_bytes = 0;   // most live bytes, aligned, without holes
  std::int64_t host_peak_bytes = 0;
  std::int64_t file_peak_bytes = 0;
  double predicted_ns = 0;
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
  std::int64_t recomputed_ops = 0;
  std::int64_t workspace_bytes = 0;  // the largest of any step
  // kOptimal: no plan in stages is faster (0: not asked), and whether the search ended by itself.
  double least_ns = 0;
  bool is_proved = false;
};

struct PlanBounds {
  std::int64_t stock_peak_bytes = 0;  // program order, freed after the last use
  std::int64_t persistent_bytes = 0;  // resident from the start to the end
  double stock_predicted_ns = 0;
  // LB0: the most distinct bytes one op touches, with what stays resident for the whole step and
  // those inputs that an op after it reads. A proof: no plan in any order keeps a smaller budget.
  std::int64_t lower_bound_bytes = 0;
  std::string pinned_by;  // the op of LB0 and its bytes
  // The same with what cannot move across the op in the best of the orders tried: no plan of this
  // planner is smaller.
  std::int64_t order_bound_bytes = 0;
  // LB1: the same again with what crosses and was not made by the forward pass, or whose sources
  // are gone by then, so that only a copy could bring it back there. A bound for plans without
  // copies; with copies the minimum may be smaller, down to LB0.
  std::int64_t resident_bound_bytes = 0;
  CostSource cost_source = CostSource::kModelled;
};

// Plans one graph for one device. Keeps what it computed, so that many budgets cost little more
// than one. The graph must outlive it. Single owner. Deterministic.
class Planner {
 public:
  Planner(const graph::Graph& graph, const DeviceModel& device, const PlannerOptions& options);
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  const PlanBounds& bounds() const;
  // The smallest budget this planner has a plan for: found, and proved to be the least only where
  // it equals lower_bound_bytes. Cost: the lowest rungs and their layouts, once.
  std::int64_t minimum_budget_bytes();
  // The fastest plan found whose arena fits. Errors: InfeasibleBudget with the minimum and what
  // pins it. Every plan is validated before it is returned.
  PlanReport plan(std::int64_t budget_bytes);
  // The same; nothing where no plan fits, without a search for the minimum.
  std::optional<PlanReport> try_plan(std::int64_t budget_bytes);
  // No plan in these orders is faster within the budget: the linear relaxation over gap choices
  // where it closes, else compute time alone.
  double time_lower_bound_ns(std::int64_t budget_bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The program order with the optimizer's ops moved: those that update one parameter stand together
// right after the last op they need. Cost: O(ops + edges).
std::vector<graph::OpId> early_update_order(const graph::Graph& graph);

}  // namespace plimsoll::plan
