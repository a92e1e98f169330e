// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/validate.h"

#include "bounds.h"
#include "optimal.h"
#include "policy_planner.h"

namespace plimsoll::plan {

namespace {

constexpr int kExactRounds = 4;

// The exact planner starts from what `auto` finds.
PlannerOptions searched_options(PlannerOptions options) {
  if (options.policy == Policy::kOptimal) options.policy = Policy::kAuto;
  return options;
}

void check_optimal(const graph::Graph& graph, const PlannerOptions& options) {
  if (options.policy != Policy::kOptimal) return;
  if (graph.op_count() > kMostOptimalOps)
    throw InvalidArgument(fmt::format("--policy optimal: {} ops; at most {} are solved exactly",
                                      graph.op_count(), kMostOptimalOps));
  if (options.stream_optimizer_state)
    throw InvalidArgument("--policy optimal: plans no streamed optimizer state");
}

}  // namespace

class Planner::Impl {
 public:
  Impl(const graph::Graph& graph, const DeviceModel& device, const PlannerOptions& options)
      : graph_(graph),
        device_(device),
        options_(options),
        planner_((check_optimal(graph, options), graph), device_, searched_options(options)) {}

  const PlanBounds& bounds() const { return planner_.bounds(); }

  std::int64_t minimum() {
    if (minimum_bytes_ < 0)
      minimum_bytes_ = planner_.least_budget(std::numeric_limits<std::int64_t>::max());
    return minimum_bytes_;
  }

  PlanReport plan(std::int64_t budget_bytes) {
    std::optional<PlanReport> report = try_plan(budget_bytes);
    if (!report) throw InfeasibleBudget(budget_bytes, minimum(), bounds().pinned_by);
    return std::move(*report);
  }

  std::optional<PlanReport> try_plan(std::int64_t budget_bytes) {
    const Pick pick = planner_.fastest(budget_bytes);
    if (pick.found == nullptr) return std::nullopt;
    if (options_.policy != Policy::kOptimal) return report(pick, budget_bytes);
    const Exact exact = solve_exactly(budget_bytes, pick.found->fitted->timeline.total_ns);
    PlanReport result = report(planner_.fastest(budget_bytes), budget_bytes);
    result.is_proved = exact.is_proved;
    result.least_ns = exact.bound_ns;
    return result;
  }

  double time_lower_bound(std::int64_t budget_bytes) const {
    return bound_time_ns(planner_.problems(), budget_bytes, options_.policy);
  }

 private:
  struct Exact {
    bool is_proved = true;
    double bound_ns = std::numeric_limits<double>::infinity();
  };
  // Adds what is faster than the plan known; where holes between blocks push its arena over the
  // budget, solves again with that much less.
  Exact solve_exactly(std::int64_t budget_bytes, double known_ns) {
    Exact exact;
    const std::vector<Problem>& problems = planner_.problems();
    for (std::size_t i = 0; i < problems.size(); ++i) {
      OptimalOptions options;
      options.budget_bytes = budget_bytes;
      options.most_ns = known_ns;
      for (int round = 0; round < kExactRounds; ++round) {
        OptimalResult result = solve_optimally(problems[i], options);
        if (round == 0) exact.bound_ns = std::min(exact.bound_ns, result.bound_ns);
        if (round == 0) exact.is_proved = exact.is_proved && result.is_proved;
        if (!result.has_draft || result.draft.peak_bytes > budget_bytes) break;
        ReplayResult replay;
        replay.feasible = true;
        count_moves(problems[i], result.draft, replay);
        replay.draft = std::move(result.draft);
        const std::int64_t over = planner_.add_plan(i, replay, budget_bytes) - budget_bytes;
        if (over <= 0) break;
        options.budget_bytes -= over;
      }
    }
    return exact;
  }

  PlanReport report(const Pick& pick, std::int64_t budget_bytes) const {
    const FittedPlan& found = *pick.found->fitted;
    const PlanVerdict verdict = validate_plan(graph_, found.plan, budget_bytes);
    PLIMSOLL_CHECK(verdict.valid(), verdict.message);
    PlanReport report;
    report.plan = found.plan;
    report.timeline = found.timeline;
    report.order_name = pick.order_name;
    report.found_by = pick.policy;
    report.budget_bytes = budget_bytes;
    PLIMSOLL_CHECK(found.timeline.peak_bytes == verdict.peak_bytes,
                   "the simulated device needs other bytes than the validator counts");
    report.peak_bytes = found.timeline.peak_bytes;
    report.arena_bytes = found.plan.arena_bytes;
    report.live_bytes = verdict.live_bytes;
    report.host_peak_bytes = verdict.host_peak_bytes;
    report.file_peak_bytes = verdict.file_peak_bytes;
    report.predicted_ns = found.timeline.total_ns;
    report.offloaded_bytes = found.offloaded_bytes;
    report.prefetched_bytes = found.prefetched_bytes;
    report.recomputed_ops = found.recomputed_ops;
    for (const Step& step : report.plan.steps)
      report.workspace_bytes = std::max(report.workspace_bytes, step.workspace_bytes);
    return report;
  }

  const graph::Graph& graph_;
  DeviceModel device_;
  PlannerOptions options_;
  PolicyPlanner planner_;
  std::int64_t minimum_bytes_ = -1;
};

Planner::Planner(const graph::Graph& graph, const DeviceModel& device,
                 const PlannerOptions& options)
    : impl_(std::make_unique<Impl>(graph, device, options)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

const PlanBounds& Planner::bounds() const { return impl_->bounds(); }
std::int64_t Planner::minimum_budget_bytes() { return impl_->minimum(); }
PlanReport Planner::plan(std::int64_t budget_bytes) { return impl_->plan(budget_bytes); }
std::optional<PlanReport> Planner::try_plan(std::int64_t budget_bytes) {
  return impl_->try_plan(budget_bytes);
}
double Planner::time_lower_bound_ns(std::int64_t budget_bytes) {
  return impl_->time_lower_bound(budget_bytes);
}

}  // namespace plimsoll::plan
