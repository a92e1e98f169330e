// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/base/size.h"
#include "plimsoll/plan/liveness.h"
#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/validate.h"

#include "choose.h"
#include "problem.h"
#include "rung.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;

namespace {

constexpr std::pair<Policy, std::string_view> kPolicyNames[] = {
    {Policy::kAuto, "auto"},
    {Policy::kNone, "none"},
    {Policy::kLiveness, "liveness"},
    {Policy::kSuperNeurons, "superneurons"},
    {Policy::kRecomputeOnly, "recompute-only"},
    {Policy::kOffloadOnly, "offload-only"},
    {Policy::kBaselineChen, "baseline-chen"},
    {Policy::kBaselineDtr, "baseline-dtr"},
    {Policy::kBaselineCapuchin, "baseline-capuchin"},
    {Policy::kBaselinePofo, "baseline-pofo"},
    {Policy::kBaselineCheckmate, "baseline-checkmate"}};

// Simulated work of one rung, in ops; small graphs get more tries, large ones fewer.
constexpr std::size_t kOpsOfRung = 20000;
constexpr int kMostTries = 120;
constexpr int kLeastTries = 4;
// How full a plan may be held beyond need: full is faster, less is easier to lay out.
constexpr double kSoftParts[] = {1, 0.92};
constexpr std::int64_t kLayoutMoves = 50;
constexpr std::int64_t kBottomMoves = 80;
constexpr std::size_t kLargeGraph = 4000;
constexpr int kMostLinearGaps = 4000;

struct Found {
  Plan plan;
  Timeline timeline;
  std::size_t order = 0;
  std::int64_t recomputed_ops = 0;
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
};

using Rank = std::tuple<double, std::int64_t, std::int64_t, std::int64_t>;

}  // namespace

std::string_view policy_name(Policy policy) {
  for (const auto& [value, name] : kPolicyNames)
    if (value == policy) return name;
  return "?";
}

Policy parse_policy(std::string_view name, std::string_view flag) {
  std::string names;
  for (const auto& [value, known] : kPolicyNames) {
    if (known == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw InvalidArgument(fmt::format("{} {}: expected one of {}", flag, name, names));
}

std::vector<Policy> all_policies() {
  std::vector<Policy> policies;
  for (const auto& [value, name] : kPolicyNames) policies.push_back(value);
  return policies;
}

class Planner::Impl {
 public:
  Impl(const graph::Graph& graph, const DeviceModel& device, const PlannerOptions& options)
      : graph_(graph), device_(device), options_(options) {
    const OpCosts costs = op_costs(graph, device_, options.use_measured_costs);
    const ProblemOptions problem_options{options.use_measured_costs, options.stream_optimizer_state,
                                         options.workspace_cap_bytes};
    const std::vector<OpId> program(graph.program_order().begin(), graph.program_order().end());
    problems_.push_back(make_problem(graph, program, device_, costs, problem_options));
    names_.emplace_back("program");
    const std::vector<OpId> early = early_update_order(graph);
    const bool fixed = options.policy == Policy::kNone || options.policy == Policy::kLiveness;
    if (options.early_updates && !fixed && early != program) {
      problems_.push_back(make_problem(graph, early, device_, costs, problem_options));
      names_.emplace_back("early updates");
    }
    for (const Problem& problem : problems_) drop_ns_.push_back(drop_costs_ns(problem));
    add_bounds(costs.source);
  }

  const PlanBounds& bounds() const { return bounds_; }

  std::int64_t minimum() {
    add_stock();
    if (!has_minimum_ && moves()) {
      has_minimum_ = true;
      find_least_load();
      // Rungs below the arena found so far may have a smaller one.
      climb(least_arena());
    }
    return least_arena();
  }

  PlanReport plan(std::int64_t budget_bytes) {
    const std::int64_t least = minimum();
    if (budget_bytes < least) throw InfeasibleBudget(budget_bytes, least, bounds_.pinned_by);
    climb(budget_bytes);
    const Found* best = nullptr;
    for (const Found& found : found_) {
      if (found.plan.arena_bytes > budget_bytes) continue;
      if (best == nullptr || rank(found) < rank(*best)) best = &found;
    }
    return report(*best, budget_bytes);
  }

  double time_lower_bound(std::int64_t budget_bytes) {
    double bound = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      double here = problems_[i].total_ns;
      if (static_cast<int>(problems_[i].gaps.size()) <= kMostLinearGaps) {
        const LinearChoice linear =
            choose_by_linear_program(problems_[i], least_drop_costs(problems_[i]), budget_bytes,
                                     may_recompute(options_.policy), may_offload(options_.policy));
        if (linear.solved) here = std::max(here, linear.bound_ns);
      }
      bound = std::min(bound, here);
    }
    return bound;
  }

 private:
  // An op with several results is counted for the largest alone: one run brings all of them back.
  std::vector<double> least_drop_costs(const Problem& problem) const {
    std::vector<double> costs;
    for (const Gap& gap : problem.gaps) {
      double cost = 0;
      for (const OpId w : problem.writers[gap.storage.index()]) {
        StorageId largest;
        for (const graph::ValueId v : graph_.results(w)) {
          const StorageId s = graph_.storage(v);
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

  void add_bounds(CostSource source) {
    const Problem& program = problems_.front();
    bounds_.cost_source = source;
    bounds_.stock_peak_bytes = program.stock_peak_bytes;
    bounds_.stock_predicted_ns = program.total_ns;
    for (std::size_t i = 0; i < graph_.storage_count(); ++i)
      if (graph_.live_at_start(StorageId(i)) && graph_.live_at_end(StorageId(i)))
        bounds_.persistent_bytes += program.bytes[i];
    const Problem* best = &program;
    for (const Problem& problem : problems_)
      if (problem.largest_op_bytes < best->largest_op_bytes) best = &problem;
    bounds_.lower_bound_bytes = best->largest_op_bytes;
    if (best->largest_op.valid())
      bounds_.pinned_by = fmt::format("op {} '{}' touches {} bytes at once, with what cannot move",
                                      best->largest_op.value(), graph_.name(best->largest_op),
                                      best->largest_op_bytes);
    bounds_.resident_bound_bytes = resident_bound(*best);
  }
  std::int64_t resident_bound(const Problem& problem) const {
    std::vector<std::int64_t> across(problem.order.size() + 1);
    for (const Gap& gap : problem.gaps) {
      const auto writers = problem.writers[gap.storage.index()];
      if (!writers.empty() && graph_.phase(writers[0]) == graph::Phase::kForward &&
          problem.expiry[gap.storage.index()] >= gap.to)
        continue;
      across[std::size_t(gap.from) + 1] += problem.bytes[gap.storage.index()];
      across[std::size_t(gap.to)] -= problem.bytes[gap.storage.index()];
    }
    std::int64_t bound = problem.largest_op_bytes;
    std::int64_t held = 0;
    for (std::size_t i = 0; i < problem.order.size(); ++i) {
      held += across[i];
      std::int64_t bytes = problem.pinned_bytes + held;
      for (const StorageId s : graph_.touched(problem.order[i])) {
        const bool vanishes = graph_.inplace_storage(problem.order[i]) == s &&
                              problem.last_use(s) == static_cast<std::int64_t>(i);
        if (problem.is_pinned[s.index()] == 0 && !vanishes) bytes += problem.bytes[s.index()];
      }
      bound = std::max(bound, std::min(bytes, problem.curve_bytes[i]));
    }
    return bound;
  }

  int tries() const {
    if (options_.evaluations > 0) return options_.evaluations;
    const std::size_t ops = std::max<std::size_t>(1, graph_.op_count());
    return std::clamp(static_cast<int>(kOpsOfRung / ops), kLeastTries, kMostTries);
  }

  // The fastest, then the one that moves and repeats least, then the smallest.
  static Rank rank(const Found& found) {
    return Rank(found.timeline.total_ns, found.offloaded_bytes, found.recomputed_ops,
                found.plan.arena_bytes);
  }

  // Places, times and keeps a replay; lays out again under a smaller load where holes between
  // blocks push the arena above the level.
  void keep(std::size_t order, const RungResult& result, std::int64_t level_bytes) {
    // The lowest rungs decide what is feasible at all: more work on their layout.
    const std::int64_t moves = next_rung_ < 4 ? kBottomMoves : kLayoutMoves;
    std::int64_t arena = add_found(order, result.replay, moves);
    ReplayOptions options = result.options;
    const int again = graph_.op_count() > kLargeGraph ? 1 : 2;
    for (int i = 0; i < again && arena > level_bytes; ++i) {
      options.budget_bytes -= arena - level_bytes;
      const ReplayResult smaller = replay(problems_[order], result.decisions, options);
      if (!smaller.feasible) return;
      arena = add_found(order, smaller, moves);
    }
  }
  std::int64_t add_found(std::size_t order, const ReplayResult& replay, std::int64_t moves) {
    Found found{replay.plan,
                {},
                order,
                replay.recomputed_ops,
                replay.offloaded_bytes,
                replay.prefetched_bytes};
    place_instances(graph_, found.plan, moves);
    add_waits(graph_, found.plan);
    found.timeline = simulate_plan(found.plan);
    found_.push_back(std::move(found));
    return found_.back().plan.arena_bytes;
  }

  void add_stock() {
    if (!found_.empty()) return;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      ReplayOptions options;
      options.budget_bytes = std::int64_t{1} << 61;
      options.free_after_use = options_.policy != Policy::kNone;
      const Decisions keep_all(problems_[i].gaps.size(), Choice::kKeep);
      add_found(i, replay(problems_[i], keep_all, options), kLayoutMoves);
    }
  }

  bool moves() const {
    return options_.policy != Policy::kNone && options_.policy != Policy::kLiveness;
  }

  std::int64_t least_arena() const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Found& found : found_) least = std::min(least, found.plan.arena_bytes);
    return least;
  }

  // The ladder starts at the least load of the policy's own moves; for auto, copies alone may go
  // below it and then set the minimum.
  void find_least_load() {
    least_load_bytes_ = least_arena();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      least_load_bytes_ = std::min(least_load_bytes_, bisect(i, options_.policy));
      if (options_.policy == Policy::kAuto) bisect(i, Policy::kOffloadOnly);
    }
  }

  // Bisects for the smallest level at which anything fits, and keeps that plan.
  std::int64_t bisect(std::size_t i, Policy policy) {
    std::int64_t low = problems_[i].largest_op_bytes;
    std::int64_t high = problems_[i].peak_bytes;
    std::optional<RungResult> best;
    const int rounds = graph_.op_count() > kLargeGraph ? 7 : 14;
    for (int round = 0; round < rounds && (round == 0 || low < high); ++round) {
      const std::int64_t middle = round == 0 ? low : low + (high - low) / (round < 4 ? 8 : 2);
      auto result = Rung(problems_[i], drop_ns_[i], policy, middle, 1, 2).find_any();
      if (result) {
        high = middle;
        best = std::move(result);
      } else {
        low = middle + 1;
      }
    }
    if (!best) return problems_[i].peak_bytes;
    keep(i, *best, high);
    return high;
  }

  // Rungs between the minimum and stock's arena, even in the logarithm of what can move.
  void make_ladder() {
    if (!ladder_.empty()) return;
    std::int64_t top = 0;
    for (const Found& found : found_) top = std::max(top, found.plan.arena_bytes);
    const std::int64_t bottom = least_load_bytes_;
    const std::int64_t pinned = problems_.front().pinned_bytes;
    const int rungs = graph_.op_count() > kLargeGraph ? 14 : 28;
    const double low = static_cast<double>(std::max<std::int64_t>(1, bottom - pinned));
    const double high = static_cast<double>(std::max<std::int64_t>(1, top - pinned));
    for (int i = 0; i < rungs; ++i) {
      const double level = low * std::pow(high / low, static_cast<double>(i) / rungs);
      const std::int64_t bytes = pinned + static_cast<std::int64_t>(std::llround(level));
      if (ladder_.empty() || bytes > ladder_.back()) ladder_.push_back(bytes);
    }
    warm_.assign(problems_.size(), std::vector<Decisions>(std::size(kSoftParts)));
  }

  void climb(std::int64_t budget_bytes) {
    if (!moves()) return;
    make_ladder();
    for (; next_rung_ < ladder_.size() && ladder_[next_rung_] <= budget_bytes; ++next_rung_) {
      for (std::size_t i = 0; i < problems_.size(); ++i) search_rung(i, ladder_[next_rung_]);
    }
  }
  // Baselines are searched once: their authors know nothing of layouts.
  void search_rung(std::size_t order, std::int64_t level_bytes) {
    const bool ours = options_.policy == Policy::kAuto ||
                      options_.policy == Policy::kRecomputeOnly ||
                      options_.policy == Policy::kOffloadOnly;
    // Of a large graph one is enough.
    const bool large = graph_.op_count() > kLargeGraph;
    const std::size_t parts = ours && !large ? std::size(kSoftParts) : 1;
    for (std::size_t k = 0; k < parts; ++k) {
      Rung rung(problems_[order], drop_ns_[order], options_.policy, level_bytes, kSoftParts[k],
                tries());
      const auto result = rung.search(warm_[order][k]);
      if (!result) continue;
      warm_[order][k] = result->decisions;
      keep(order, *result, level_bytes);
    }
  }

  PlanReport report(const Found& found, std::int64_t budget_bytes) const {
    const PlanVerdict verdict = validate_plan(graph_, found.plan, budget_bytes);
    PLIMSOLL_CHECK(verdict.valid(), verdict.message);
    PlanReport report;
    report.plan = found.plan;
    report.timeline = found.timeline;
    report.order_name = names_[found.order];
    report.budget_bytes = budget_bytes;
    report.peak_bytes = verdict.peak_bytes;
    report.arena_bytes = verdict.arena_bytes;
    report.host_peak_bytes = verdict.host_peak_bytes;
    report.file_peak_bytes = verdict.file_peak_bytes;
    report.predicted_ns = found.timeline.total_ns;
    report.offloaded_bytes = found.offloaded_bytes;
    report.prefetched_bytes = found.prefetched_bytes;
    report.recomputed_ops = found.recomputed_ops;
    for (const Step& step : found.plan.steps)
      report.workspace_bytes = std::max(report.workspace_bytes, step.workspace_bytes);
    return report;
  }

  const graph::Graph& graph_;
  DeviceModel device_;
  PlannerOptions options_;
  std::vector<Problem> problems_;  // by order
  std::vector<std::string> names_;
  std::vector<std::vector<double>> drop_ns_;
  std::vector<std::vector<Decisions>> warm_;  // by order and soft part: the last rung's best
  std::vector<Found> found_;
  std::vector<std::int64_t> ladder_;
  std::size_t next_rung_ = 0;
  bool has_minimum_ = false;
  std::int64_t least_load_bytes_ = 0;
  PlanBounds bounds_;
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
double Planner::time_lower_bound_ns(std::int64_t budget_bytes) {
  return impl_->time_lower_bound(budget_bytes);
}

}  // namespace plimsoll::plan
