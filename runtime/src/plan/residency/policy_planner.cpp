// SPDX-License-Identifier: Apache-2.0
#include "policy_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "anneal.h"
#include "bounds.h"
#include "residual_order.h"
#include "rung.h"

namespace plimsoll::plan {

using graph::OpId;

namespace {

// Simulated work of one rung, in ops; small graphs get more tries, large ones fewer.
constexpr std::size_t kOpsOfRung = 40000;
constexpr int kMostTries = 1200;
constexpr int kLeastTries = 5;
constexpr int kLeastTriesOfSmall = 16;
constexpr std::size_t kLargeGraph = 4000;
constexpr std::size_t kRungs = 64;
constexpr std::size_t kRungsOfLarge = 28;
// Where their rungs are far apart: the lowest ones, in parts of the least.
constexpr double kLowOfLarge[] = {1.06, 1.13, 1.2, 1.27, 1.34};
// The lowest decide what is feasible at all: more work on their layout.
constexpr std::size_t kTightRungs = 6;
constexpr std::size_t kTightTimes = 1;
constexpr std::int64_t kNodes = 5000;
constexpr std::int64_t kTightNodes = 50000;
constexpr std::size_t kThoroughRungs = 14;
constexpr std::size_t kBriefPart = 4;
// Every so many rungs first decisions of every kind are tried.
constexpr std::size_t kBroadEvery = 4;
// And every order; at the others only those that were no slower than this at the last one.
constexpr double kNearBest = 1.01;

// What other policies plan is among the plans of `auto`. Those that search long, or solve linear
// programs, are met on small graphs alone.
constexpr Policy kQuickRivals[] = {Policy::kSuperNeurons, Policy::kBaselineChen,
                                   Policy::kBaselineDtr, Policy::kBaselineCapuchin,
                                   Policy::kBaselinePofo};
constexpr Policy kDearRivals[] = {Policy::kBaselineCheckmate, Policy::kRecomputeOnly,
                                  Policy::kOffloadOnly};
constexpr std::size_t kOpsOfDear = 64;
// Above so many times stock's time, rungs are searched longer, and for nothing faster: so a larger
// budget at which there is no need for it is never the slower one.
constexpr double kSlow = 1.2;
constexpr std::size_t kOpsOfAnneal = 3'000'000;
constexpr std::size_t kAnnealsOfGap = 40;
constexpr std::size_t kLeastAnneals = 640;
constexpr std::size_t kOpsOfLeastAnneals = 16'000;  // in larger graphs there may be fewer
// Where even the quick search says more than this, no other search makes much of it.
constexpr double kHopeless = 1.8;
constexpr int kRivalTries = 6;
constexpr int kRivalTriesOfLarge = 1;

}  // namespace

PolicyPlanner::PolicyPlanner(const graph::Graph& graph, const DeviceModel& device,
                             const PlannerOptions& options)
    : graph_(graph), device_(device), options_(options) {
  const OpCosts costs = op_costs(graph, device_, options.use_measured_costs);
  add_order({graph.program_order().begin(), graph.program_order().end()}, costs, "program");
  if (options.early_updates && moves())
    add_order(early_update_order(graph), costs, "early updates");
  if (options.reorder && is_ours() && !is_large()) add_solved_orders(costs);
  bounds_ = compute_bounds(problems_, costs.source);
  warm_.resize(problems_.size());
  last_ns_.assign(problems_.size(), FoundPlans::kAnyTime);
  starts_.resize(problems_.size());
  annealed_last_.resize(problems_.size());
  mix_.resize(problems_.size());
  if (options.policy == Policy::kAuto) add_rivals();
}

void PolicyPlanner::add_order(const std::vector<OpId>& order, const OpCosts& costs,
                              const char* name) {
  for (const Problem& known : problems_)
    if (known.order == order || order.empty()) return;
  const ProblemOptions options{options_.use_measured_costs, options_.stream_optimizer_state,
                               options_.workspace_cap_bytes};
  problems_.push_back(make_problem(graph_, order, device_, costs, options));
  drop_ns_.push_back(drop_costs_ns(problems_.back()));
  names_.emplace_back(name);
}

void PolicyPlanner::add_solved_orders(const OpCosts& costs) {
  add_order(solve_order(problems_.front()), costs, "least peak");
  bounds_ = compute_bounds(problems_, costs.source);
  make_ladder();
  add_order(residual_order(), costs, "re-solved");
  ladder_.clear();
}

// Of the tightest plan there is.
std::vector<OpId> PolicyPlanner::residual_order() const {
  if (next_rung_ >= ladder_.size()) return {};
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    const auto tight =
        Rung(problems_[i], drop_ns_[i], options_.policy, ladder_[next_rung_], 2).find_any();
    if (tight) return solve_residual_order(problems_[i], tight->replay.draft);
  }
  return {};
}

void PolicyPlanner::add_rivals() {
  PlannerOptions options = options_;
  const auto add = [&](Policy policy) {
    options.policy = policy;
    rivals_.push_back(std::make_unique<PolicyPlanner>(graph_, device_, options));
  };
  for (const Policy policy : kQuickRivals) add(policy);
  if (graph_.op_count() <= kOpsOfDear)
    for (const Policy policy : kDearRivals) add(policy);
}

bool PolicyPlanner::moves() const {
  return options_.policy != Policy::kNone && options_.policy != Policy::kLiveness;
}
bool PolicyPlanner::is_ours() const {
  return options_.policy == Policy::kAuto || options_.policy == Policy::kRecomputeOnly ||
         options_.policy == Policy::kOffloadOnly;
}
bool PolicyPlanner::is_large() const { return graph_.op_count() > kLargeGraph; }

int PolicyPlanner::tries() const {
  if (!is_ours()) return is_large() ? kRivalTriesOfLarge : kRivalTries;
  if (options_.evaluations > 0) return options_.evaluations;
  const std::size_t ops = std::max<std::size_t>(1, graph_.op_count());
  // The lowest rungs decide most, and what they find is where the others start.
  const std::size_t part = next_rung_ >= first_rung_ + kThoroughRungs ? kBriefPart : 1;
  const int least = is_large() ? kLeastTries : kLeastTriesOfSmall;
  const std::size_t times = next_rung_ < first_rung_ + kTightRungs ? kTightTimes : 1;
  return std::clamp(static_cast<int>(times * kOpsOfRung / ops / part), least, kMostTries);
}

// --- plans -----------------------------------------------------------------------------------

Found& PolicyPlanner::add(std::size_t order, RungResult result, std::int64_t level_bytes) {
  Found found;
  found.order = order;
  found.problem = &problems_[order];
  found.decisions = std::move(result.given);
  found.replay = result.options;
  const bool is_tight = is_ours() && next_rung_ < first_rung_ + kTightRungs;
  found.fit = {level_bytes, is_large() ? 0 : is_tight ? kTightNodes : kNodes};
  found.least_budget_bytes = level_bytes;
  found.live_bytes = result.replay.draft.peak_bytes;
  found.least_ns = least_ns(problems_[order], result.replay.draft);
  found.offloaded_bytes = result.replay.offloaded_bytes;
  found.recomputed_ops = result.replay.recomputed_ops;
  return found_.add(std::move(found));
}

std::int64_t PolicyPlanner::add_plan(std::size_t order, const ReplayResult& made,
                                     std::int64_t budget_bytes) {
  Found found;
  found.order = order;
  found.problem = &problems_[order];
  found.live_bytes = made.draft.peak_bytes;
  found.least_ns = least_ns(problems_[order], made.draft);
  found.offloaded_bytes = made.offloaded_bytes;
  found.recomputed_ops = made.recomputed_ops;
  found.fitted = lay_out(problems_[order], made, {budget_bytes, kTightNodes});
  return found_.add(std::move(found)).fitted->plan.arena_bytes;
}

void PolicyPlanner::add_stock() {
  if (!found_.empty()) return;
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    RungResult all;
    all.options.budget_bytes = std::int64_t{1} << 61;
    all.options.free_after_use = options_.policy != Policy::kNone;
    all.given.assign(problems_[i].gaps.size(), Choice::kKeep);
    all.replay = replay(problems_[i], all.given, all.options);
    const std::int64_t peak = all.replay.draft.peak_bytes;
    add(i, std::move(all), peak).fit.may_move = false;
  }
}

Pick PolicyPlanner::fastest(std::int64_t budget_bytes, double limit_ns) {
  add_stock();
  const auto pick = [&](const Found* found) {
    return Pick{found, options_.policy, found == nullptr ? "" : names_[found->order]};
  };
  Pick best = pick(found_.fastest(budget_bytes, limit_ns));
  // Nothing is faster than every op once.
  if (best.found == nullptr || best.found->fitted->timeline.total_ns > bounds_.stock_predicted_ns) {
    climb(budget_bytes, limit_ns);
    best = pick(found_.fastest(budget_bytes, limit_ns));
  }
  const double slow_ns = kSlow * bounds_.stock_predicted_ns;
  if (is_ours() && options_.thorough &&
      (best.found == nullptr || best.found->fitted->timeline.total_ns > slow_ns)) {
    anneal_up_to(budget_bytes);
    if (best.found != nullptr) limit_ns = best.found->fitted->timeline.total_ns;
    const Found* other = annealed_.fastest(budget_bytes, limit_ns);
    if (other != nullptr) best = pick(other);
  }
  for (const auto& rival : rivals_) {
    if (best.found != nullptr) limit_ns = best.found->fitted->timeline.total_ns;
    if (limit_ns <= bounds_.stock_predicted_ns) break;
    const Pick other = rival->fastest(budget_bytes, limit_ns);
    if (other.found != nullptr) best = other;
  }
  return best;
}

// In order of load: a layout is never below it.
std::int64_t PolicyPlanner::least_budget(std::int64_t limit_bytes) {
  add_stock();
  make_ladder();
  std::int64_t least = found_.least_budget(limit_bytes);
  for (std::size_t rung = is_ours() ? next_rung_ : 0;
       rung < ladder_.size() && ladder_[rung] < least; ++rung) {
    is_ours() ? search_next() : search_below(rung, FoundPlans::kAnyTime);
    least = found_.least_budget(least);
  }
  for (const auto& rival : rivals_) least = std::min(least, rival->least_budget(least));
  return least;
}

// --- the ladder --------------------------------------------------------------------------------

// Levels between the least bytes one op needs and stock's peak, even in the logarithm of what can
// move. They do not depend on the budget that is asked for.
void PolicyPlanner::make_ladder() {
  if (!ladder_.empty() || !moves()) return;
  const std::int64_t pinned = problems_.front().pinned_bytes;
  const auto movable = [&](std::int64_t bytes) {
    return static_cast<double>(std::max<std::int64_t>(1, bytes - pinned));
  };
  const double low = movable(bounds_.order_bound_bytes);
  const double high = movable(bounds_.stock_peak_bytes);
  const std::size_t rungs = is_large() ? kRungsOfLarge : kRungs;
  std::vector<double> levels;
  levels.reserve(rungs + std::size(kLowOfLarge));
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
  searched_ns_.assign(ladder_.size(), 0);
  if (is_ours()) next_rung_ = first_rung_ = lowest_rung();
}

// The first rung at which anything fits, by bisection.
std::size_t PolicyPlanner::lowest_rung() const {
  std::size_t low = 0;
  std::size_t high = ladder_.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    bool fits = false;
    for (std::size_t i = 0; i < problems_.size() && !fits; ++i)
      fits = Rung(problems_[i], drop_ns_[i], options_.policy, ladder_[middle], 2)
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

void PolicyPlanner::climb(std::int64_t budget_bytes, double limit_ns) {
  make_ladder();
  if (is_ours()) {
    while (next_rung_ < ladder_.size() && ladder_[next_rung_] <= budget_bytes) search_next();
    return;
  }
  for (std::size_t rung = 0; rung < ladder_.size() && ladder_[rung] <= budget_bytes; ++rung)
    search_below(rung, limit_ns);
}

void PolicyPlanner::search_next() {
  const std::int64_t level = ladder_[next_rung_];
  const bool is_tight = next_rung_ < first_rung_ + kTightRungs;
  const double near_ns = kNearBest * *std::min_element(last_ns_.begin(), last_ns_.end());
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    if (!is_tight && next_rung_ % kBroadEvery != 0 && last_ns_[i] > near_ns) continue;
    Rung rung(problems_[i], drop_ns_[i], options_.policy, level, tries());
    // On large graphs a mix serves better than what it became at a smaller budget.
    auto result =
        rung.search(is_large() ? Decisions() : warm_[i], next_rung_ % kBroadEvery == 0, mix_[i]);
    if (!result) continue;
    warm_[i] = result->decisions;
    last_ns_[i] = result->replay.estimated_ns;
    const double times = result->replay.estimated_ns / bounds_.stock_predicted_ns;
    if (times > kSlow && times < kHopeless)
      starts_[i].push_back({next_rung_, {result->given, {}, result->options, {}}});
    add(i, std::move(*result), level);
  }
  ++next_rung_;
}

void PolicyPlanner::anneal_up_to(std::int64_t budget_bytes) {
  for (; next_annealed_ < next_rung_ && ladder_[next_annealed_] <= budget_bytes; ++next_annealed_)
    for (std::size_t i = 0; i < problems_.size(); ++i) anneal_rung(next_annealed_, i);
}

// From what the rung itself found, what came of the rung below, and first decisions of many kinds.
void PolicyPlanner::anneal_rung(std::size_t rung, std::size_t order) {
  const Problem& problem = problems_[order];
  const auto own = std::find_if(starts_[order].begin(), starts_[order].end(),
                                [&](const Start& start) { return start.rung == rung; });
  if (own == starts_[order].end()) return;
  AnnealOptions options;
  options.least_ns = kSlow * bounds_.stock_predicted_ns;
  const std::size_t ops = problem.order.size();
  const std::size_t tries =
      std::max(kOpsOfAnneal / ops, ops <= kOpsOfLeastAnneals ? kLeastAnneals : 1);
  options.tries = static_cast<int>(std::min(tries, kAnnealsOfGap * problem.gaps.size()));
  std::vector<RungResult> starts =
      Rung(problem, drop_ns_[order], options_.policy, ladder_[rung], 1).first_mixes();
  starts.push_back(own->found);
  if (annealed_last_[order]) {
    starts.push_back(*annealed_last_[order]);
    starts.back().options.budget_bytes = ladder_[rung];
  }
  auto result = anneal(problem, drop_ns_[order], starts, options);
  if (!result) return;
  annealed_last_[order] = RungResult{result->given, {}, result->options, {}};
  Found found;
  found.order = order;
  found.problem = &problem;
  found.fitted = arrange_in_budget(problem, result->replay, ladder_[rung]);
  if (found.fitted->timeline.total_ns < options.least_ns) return;
  found.least_budget_bytes = ladder_[rung];
  found.live_bytes = result->replay.draft.peak_bytes;
  found.least_ns = found.fitted->timeline.total_ns;
  found.offloaded_bytes = result->replay.offloaded_bytes;
  found.recomputed_ops = result->replay.recomputed_ops;
  annealed_.add(std::move(found));
}

// Every rung by itself: what is not searched because it cannot win changes nothing elsewhere.
void PolicyPlanner::search_below(std::size_t rung, double limit_ns) {
  if (searched_ns_[rung] >= limit_ns) return;
  searched_ns_[rung] = limit_ns;
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    auto result = Rung(problems_[i], drop_ns_[i], options_.policy, ladder_[rung], tries())
                      .search_published(limit_ns);
    if (result) add(i, std::move(*result), ladder_[rung]);
  }
}

}  // namespace plimsoll::plan
