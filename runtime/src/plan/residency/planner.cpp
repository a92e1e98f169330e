// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/validate.h"

#include "bounds.h"
#include "choose.h"
#include "optimal.h"
#include "problem.h"
#include "residual_order.h"
#include "rung.h"

namespace plimsoll::plan {

using graph::OpId;

namespace {

// Simulated work of one rung, in ops; small graphs get more tries, large ones fewer.
constexpr std::size_t kOpsOfRung = 40000;
constexpr int kMostTries = 1200;
constexpr int kLeastTries = 6;
constexpr int kLeastTriesOfSmall = 16;
constexpr std::size_t kLargeGraph = 4000;
constexpr std::size_t kRungs = 64;
constexpr std::size_t kRungsOfLarge = 14;
// Where their rungs are far apart: the lowest ones, in parts of the least.
constexpr double kLowOfLarge[] = {1.06, 1.13, 1.22};
// The lowest decide what is feasible at all: more work on their layout.
constexpr std::size_t kTightRungs = 6;
constexpr std::int64_t kNodes = 5000;
constexpr std::int64_t kTightNodes = 50000;
constexpr std::size_t kThoroughRungs = 14;
constexpr std::size_t kBriefPart = 4;
// Every so many rungs first decisions of every kind are tried.
constexpr std::size_t kBroadEvery = 4;

// Published policies whose plans are among those of `auto`; the linear program of Checkmate's takes
// too long for that.
constexpr Policy kRivals[] = {Policy::kBaselineChen, Policy::kBaselineDtr,
                              Policy::kBaselineCapuchin, Policy::kBaselinePofo};
constexpr int kRivalTries = 14;
constexpr std::size_t kFewOps = 128;  // up to which they are met on every rung
constexpr int kExactRounds = 4;

// A plan that was found, addresses and times made when they are asked for.
struct Found {
  ReplayResult replay;
  std::size_t order = 0;
  std::int64_t level_bytes = 0;  // what the layout aims at
  std::int64_t nodes = 0;        // and how long it may search
  double least_ns = 0;           // no layout is faster
  std::optional<Plan> plan;
  Timeline timeline;
};

}  // namespace

class Planner::Impl {
 public:
  Impl(const graph::Graph& graph, const DeviceModel& device, const PlannerOptions& options)
      : graph_(graph), device_(device), options_(options) {
    const OpCosts costs = op_costs(graph, device_, options.use_measured_costs);
    const ProblemOptions problem_options{options.use_measured_costs, options.stream_optimizer_state,
                                         options.workspace_cap_bytes};
    const std::vector<OpId> program(graph.program_order().begin(), graph.program_order().end());
    const auto add_order = [&](const std::vector<OpId>& order, const char* name) {
      for (const Problem& known : problems_)
        if (known.order == order || order.empty()) return;
      problems_.push_back(make_problem(graph, order, device_, costs, problem_options));
      drop_ns_.push_back(drop_costs_ns(problems_.back()));
      names_.emplace_back(name);
    };
    check_optimal();
    add_order(program, "program");
    if (options.early_updates && moves()) add_order(early_update_order(graph), "early updates");
    if (options.reorder && is_ours() && !is_large()) {
      add_order(solve_order(problems_.front()), "least peak");
      bounds_ = compute_bounds(problems_, costs.source);
      make_ladder();
      add_order(residual_order(), "re-solved");
      ladder_.clear();
    }
    bounds_ = compute_bounds(problems_, costs.source);
    warm_.resize(problems_.size());
  }

  const PlanBounds& bounds() const { return bounds_; }

  // In order of load: a layout is never below it.
  std::int64_t minimum() {
    if (minimum_bytes_ >= 0) return minimum_bytes_;
    add_stock();
    std::int64_t least = least_arena();
    make_ladder();
    while (next_rung_ < ladder_.size() && ladder_[next_rung_] < least) {
      search_rung();
      least = least_arena();
    }
    return minimum_bytes_ = least;
  }

  PlanReport plan(std::int64_t budget_bytes) {
    add_stock();
    const Found* best = fastest(budget_bytes);
    // Nothing is faster than every op once.
    if (best == nullptr || best->timeline.total_ns > bounds_.stock_predicted_ns) {
      climb(budget_bytes);
      best = fastest(budget_bytes);
    }
    if (best == nullptr) {
      const std::int64_t least = minimum();
      if (budget_bytes < least) throw InfeasibleBudget(budget_bytes, least, bounds_.pinned_by);
      best = fastest(budget_bytes);
    }
    PLIMSOLL_CHECK(best != nullptr, "no plan at the smallest budget that works");
    if (options_.policy != Policy::kOptimal) return report(*best, budget_bytes);
    const Exact exact = solve_exactly(budget_bytes, best->timeline.total_ns);
    PlanReport result = report(*fastest(budget_bytes), budget_bytes);
    result.is_proved = exact.is_proved;
    result.least_ns = exact.bound_ns;
    return result;
  }

  double time_lower_bound(std::int64_t budget_bytes) const {
    return bound_time_ns(problems_, budget_bytes, options_.policy);
  }

 private:
  bool moves() const {
    return options_.policy != Policy::kNone && options_.policy != Policy::kLiveness;
  }
  // The exact planner starts from what `auto` finds.
  Policy searched_policy() const {
    return options_.policy == Policy::kOptimal ? Policy::kAuto : options_.policy;
  }
  void check_optimal() const {
    if (options_.policy != Policy::kOptimal) return;
    if (graph_.op_count() > kMostOptimalOps)
      throw InvalidArgument(fmt::format("--policy optimal: {} ops; at most {} are solved exactly",
                                        graph_.op_count(), kMostOptimalOps));
    if (options_.stream_optimizer_state)
      throw InvalidArgument("--policy optimal: plans no streamed optimizer state");
  }
  struct Exact {
    bool is_proved = true;
    double bound_ns = std::numeric_limits<double>::infinity();
  };
  // Adds what is faster than the plan known; where holes between blocks push its arena over the
  // budget, solves again with that much less.
  Exact solve_exactly(std::int64_t budget_bytes, double known_ns) {
    Exact exact;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      OptimalOptions options;
      options.budget_bytes = budget_bytes;
      options.most_ns = known_ns;
      for (int round = 0; round < kExactRounds; ++round) {
        OptimalResult result = solve_optimally(problems_[i], options);
        if (round == 0) exact.bound_ns = std::min(exact.bound_ns, result.bound_ns);
        if (round == 0) exact.is_proved = exact.is_proved && result.is_proved;
        if (!result.has_draft || result.draft.peak_bytes > budget_bytes) break;
        ReplayResult replay;
        replay.feasible = true;
        count_moves(problems_[i], result.draft, replay);
        replay.draft = std::move(result.draft);
        add(i, std::move(replay), budget_bytes);
        place(found_.back());
        const std::int64_t over = found_.back().plan->arena_bytes - budget_bytes;
        if (over <= 0) break;
        options.budget_bytes -= over;
      }
    }
    return exact;
  }
  bool is_ours() const {
    return searched_policy() == Policy::kAuto || options_.policy == Policy::kRecomputeOnly ||
           options_.policy == Policy::kOffloadOnly;
  }
  // Of the tightest plan there is.
  std::vector<OpId> residual_order() const {
    if (next_rung_ >= ladder_.size()) return {};
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const auto tight =
          Rung(problems_[i], drop_ns_[i], searched_policy(), ladder_[next_rung_], 2).find_any();
      if (tight) return solve_residual_order(problems_[i], tight->replay.draft);
    }
    return {};
  }
  bool is_large() const { return graph_.op_count() > kLargeGraph; }
  int tries(Policy policy) const {
    if (std::find(std::begin(kRivals), std::end(kRivals), policy) != std::end(kRivals))
      return kRivalTries;
    if (options_.evaluations > 0) return options_.evaluations;
    const std::size_t ops = std::max<std::size_t>(1, graph_.op_count());
    // The lowest rungs decide most, and what they find is where the others start.
    const std::size_t part = next_rung_ >= first_rung_ + kThoroughRungs ? kBriefPart : 1;
    const int least = is_large() ? kLeastTries : kLeastTriesOfSmall;
    return std::clamp(static_cast<int>(kOpsOfRung / ops / part), least, kMostTries);
  }

  void add(std::size_t order, ReplayResult replay, std::int64_t level_bytes) {
    Found found;
    found.order = order;
    found.level_bytes = level_bytes;
    found.nodes = next_rung_ < first_rung_ + kTightRungs ? kTightNodes : kNodes;
    found.least_ns = least_ns(problems_[order], replay.draft);
    found.replay = std::move(replay);
    found_.push_back(std::move(found));
  }
  // The layout depends on the rung alone, not on the budget that is asked for, but for plans of the
  // exact planner.
  void place(Found& found) const {
    if (found.plan) return;
    found.plan = make_plan(found.replay.draft, device_.alignment_bytes);
    place_instances(graph_, *found.plan, {found.level_bytes, found.nodes});
    add_waits(graph_, *found.plan);
    found.timeline = simulate_plan(*found.plan);
  }

  // The fastest of all whose arena fits; those that cannot win are not laid out.
  const Found* fastest(std::int64_t budget_bytes) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < found_.size(); ++i)
      if (found_[i].replay.draft.peak_bytes <= budget_bytes) order.push_back(i);
    const auto promise = [&](std::size_t i) {
      const Found& it = found_[i];
      return std::tuple(it.least_ns, it.replay.offloaded_bytes, it.replay.recomputed_ops, i);
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return promise(a) < promise(b); });
    const Found* best = nullptr;
    for (const std::size_t i : order) {
      if (best != nullptr && found_[i].least_ns >= best->timeline.total_ns) break;
      place(found_[i]);
      if (found_[i].plan->arena_bytes > budget_bytes) continue;
      if (best == nullptr || found_[i].timeline.total_ns < best->timeline.total_ns)
        best = &found_[i];
    }
    return best;
  }

  std::int64_t least_arena() {
    std::vector<std::size_t> order(found_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return found_[a].replay.draft.peak_bytes < found_[b].replay.draft.peak_bytes;
    });
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const std::size_t i : order) {
      if (found_[i].replay.draft.peak_bytes >= least) break;
      place(found_[i]);
      least = std::min(least, found_[i].plan->arena_bytes);
    }
    return least;
  }

  void add_stock() {
    if (!found_.empty()) return;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      ReplayOptions options;
      options.budget_bytes = std::int64_t{1} << 61;
      options.free_after_use = options_.policy != Policy::kNone;
      const Decisions keep_all(problems_[i].gaps.size(), Choice::kKeep);
      ReplayResult all = replay(problems_[i], keep_all, options);
      const std::int64_t peak = all.draft.peak_bytes;
      add(i, std::move(all), peak);
    }
  }

  // Levels between the least bytes one op needs and stock's peak, even in the logarithm of what can
  // move. They do not depend on the budget that is asked for.
  void make_ladder() {
    if (!ladder_.empty() || !moves()) return;
    const std::int64_t pinned = problems_.front().pinned_bytes;
    const auto movable = [&](std::int64_t bytes) {
      return static_cast<double>(std::max<std::int64_t>(1, bytes - pinned));
    };
    const double low = movable(bounds_.lower_bound_bytes);
    const double high = movable(bounds_.stock_peak_bytes);
    const std::size_t rungs = is_large() ? kRungsOfLarge : kRungs;
    std::vector<double> levels;
    for (std::size_t i = 0; i < rungs; ++i)
      levels.push_back(low *
                       std::pow(high / low, static_cast<double>(i) / static_cast<double>(rungs)));
    if (is_large())
      for (const double part : kLowOfLarge) levels.push_back(std::min(high, low * part));
    std::sort(levels.begin(), levels.end());
    for (const double level : levels) {
      const std::int64_t bytes = pinned + std::llround(level);
      if (ladder_.empty() || bytes > ladder_.back()) ladder_.push_back(bytes);
    }
    next_rung_ = first_rung_ = lowest_rung();
  }
  // The first rung at which anything fits, by bisection.
  std::size_t lowest_rung() const {
    std::size_t low = 0;
    std::size_t high = ladder_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      bool fits = false;
      for (std::size_t i = 0; i < problems_.size() && !fits; ++i)
        fits = Rung(problems_[i], drop_ns_[i], searched_policy(), ladder_[middle], 2)
                   .find_any()
                   .has_value();
      if (fits) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  void climb(std::int64_t budget_bytes) {
    make_ladder();
    while (next_rung_ < ladder_.size() && ladder_[next_rung_] <= budget_bytes) search_rung();
  }
  // The rivals first: what they find is among the plans to choose from, and where `auto` starts.
  void search_rung() {
    const Policy policy = searched_policy();
    const bool is_broad = next_rung_ % kBroadEvery == 0;
    const bool meets_rivals =
        policy == Policy::kAuto && (is_broad || graph_.op_count() <= kFewOps) && !is_large();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      std::vector<Decisions>& warm = warm_[i];
      warm.resize(1 + std::size(kRivals));
      for (std::size_t k = 0; meets_rivals && k < std::size(kRivals); ++k)
        search(i, kRivals[k], false, {warm[k + 1]}, warm[k + 1]);
      const std::vector<Decisions> own = {warm.front()};
      search(i, policy, is_broad, meets_rivals ? warm : own, warm.front());
    }
    ++next_rung_;
  }
  void search(std::size_t order, Policy policy, bool is_broad, const std::vector<Decisions>& warm,
              Decisions& best) {
    Rung rung(problems_[order], drop_ns_[order], policy, ladder_[next_rung_], tries(policy));
    auto result = rung.search(warm, is_broad);
    if (!result) return;
    best = std::move(result->decisions);
    add(order, std::move(result->replay), ladder_[next_rung_]);
  }

  PlanReport report(const Found& found, std::int64_t budget_bytes) const {
    const PlanVerdict verdict = validate_plan(graph_, *found.plan, budget_bytes);
    PLIMSOLL_CHECK(verdict.valid(), verdict.message);
    PlanReport report;
    report.plan = *found.plan;
    report.timeline = found.timeline;
    report.order_name = names_[found.order];
    report.budget_bytes = budget_bytes;
    report.peak_bytes = verdict.peak_bytes;
    report.arena_bytes = verdict.arena_bytes;
    report.host_peak_bytes = verdict.host_peak_bytes;
    report.file_peak_bytes = verdict.file_peak_bytes;
    report.predicted_ns = found.timeline.total_ns;
    report.offloaded_bytes = found.replay.offloaded_bytes;
    report.prefetched_bytes = found.replay.prefetched_bytes;
    report.recomputed_ops = found.replay.recomputed_ops;
    for (const Step& step : report.plan.steps)
      report.workspace_bytes = std::max(report.workspace_bytes, step.workspace_bytes);
    return report;
  }

  const graph::Graph& graph_;
  DeviceModel device_;
  PlannerOptions options_;
  std::vector<Problem> problems_;  // by order
  std::vector<std::string> names_;
  std::vector<std::vector<double>> drop_ns_;
  // By order: the last rung's best, our own and each rival's.
  std::vector<std::vector<Decisions>> warm_;
  std::vector<Found> found_;
  std::vector<std::int64_t> ladder_;
  std::size_t first_rung_ = 0;  // at which anything fits
  std::size_t next_rung_ = 0;
  std::int64_t minimum_bytes_ = -1;
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
