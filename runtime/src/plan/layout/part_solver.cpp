// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/part_solver.h"

#include <algorithm>
#include <array>
#include <random>

#include "plan/layout/local.h"

namespace plimsoll::plan::layout_detail {
namespace {

// Above this many pairs (or this many times more pairs than a node should look at) the exact search
// would be all set-up.
constexpr std::int64_t kMostPairs = 2'000'000;
constexpr std::int64_t kFirstMoves = 20;
constexpr std::size_t kMostRounds = 40;

struct VariantName {
  std::int32_t section_choice;
  GreedyOrder order;
};
// Every order with every rule for the section; first those that solve something the others do not.
constexpr std::array<VariantName, 24> kVariants = {{
    {2, GreedyOrder::kBusiestSize}, {0, GreedyOrder::kEnd},         {0, GreedyOrder::kLength},
    {2, GreedyOrder::kLength},      {0, GreedyOrder::kBusiestArea}, {2, GreedyOrder::kSize},
    {0, GreedyOrder::kBusiestSize}, {2, GreedyOrder::kBegin},       {0, GreedyOrder::kSize},
    {2, GreedyOrder::kArea},        {0, GreedyOrder::kBegin},       {2, GreedyOrder::kBusiestArea},
    {0, GreedyOrder::kRootArea},    {2, GreedyOrder::kEnd},         {0, GreedyOrder::kArea},
    {2, GreedyOrder::kRootArea},    {1, GreedyOrder::kSize},        {1, GreedyOrder::kLength},
    {1, GreedyOrder::kBusiestArea}, {1, GreedyOrder::kRootArea},    {1, GreedyOrder::kArea},
    {1, GreedyOrder::kBegin},       {1, GreedyOrder::kBusiestSize}, {1, GreedyOrder::kEnd},
}};

}  // namespace

PartSolver::PartSolver(const Part& part, const LayoutOptions& options, std::int64_t enough)
    : part_(part), options_(options), lower_bound_(part.load) {
  for (const Item& item : part.instance.items) {
    lower_bound_ = std::max(lower_bound_, item.size + std::max<std::int64_t>(item.fixed, 0));
  }
  best_ = greedy_suite(part.instance, std::max(enough, lower_bound_), options.greedy_limit,
                       options.should_stop);
}

bool PartSolver::is_done(std::int64_t goal) const {
  return best_.height <= goal || lower_bound_ > goal || best_.height <= lower_bound_;
}

void PartSolver::stop_check(Effort& effort) const {
  if (options_.should_stop && options_.should_stop()) effort.was_stopped = true;
}

void PartSolver::improve(std::int64_t goal, Effort& effort) {
  const bool may_search = (options_.algorithm == LayoutAlgorithm::kAuto ||
                           options_.algorithm == LayoutAlgorithm::kSearch) &&
                          SectionSearch::count_pairs(part_.instance) <= kMostPairs;
  const bool may_move =
      options_.algorithm == LayoutAlgorithm::kAuto || options_.algorithm == LayoutAlgorithm::kLocal;
  // Enough for a dive and a few steps back.
  std::int64_t nodes = 2 * static_cast<std::int64_t>(part_.instance.items.size()) + 100;
  std::int64_t moves = kFirstMoves;
  for (std::size_t round = 0; round < kMostRounds && !is_done(goal); ++round) {
    const Effort before = effort;
    if (may_search) search_round(goal, nodes, effort);
    if (may_move && !is_done(goal)) local_round(goal, moves, effort);
    stop_check(effort);
    if (effort.was_stopped) return;
    if (effort.nodes == before.nodes && effort.moves == before.moves) return;
    nodes *= 2;
    moves *= 2;
  }
}

// Heights to try, in order: the bound, then steps from it to the goal or to just below the best.
std::vector<std::int64_t> PartSolver::targets(std::int64_t goal) const {
  const std::int64_t low = lower_bound_;
  const std::int64_t high = goal > low ? goal : best_.height - 1;
  std::vector<std::int64_t> result{low};
  for (const std::int64_t part : {4, 2, 1}) {
    const std::int64_t target = std::min(best_.height - 1, low + (high - low) / part);
    if (target > result.back()) result.push_back(target);
  }
  return result;
}

SearchVariant PartSolver::variant(std::size_t number) const {
  SearchVariant result;
  const std::size_t n = part_.instance.items.size();
  const VariantName& name = kVariants[number % kVariants.size()];
  const std::vector<std::int32_t>& order = orders_[static_cast<std::size_t>(name.order)];
  result.section_choice = name.section_choice;
  std::vector<double> key(n);
  std::mt19937_64 random(options_.seed + number);
  const std::size_t round = number / kVariants.size();
  const auto shuffle = static_cast<double>(round) * 0.02;
  for (std::size_t k = 0; k < n; ++k) {
    const double noise = static_cast<double>(random() % 65536) / 65536.0;
    key[static_cast<std::size_t>(order[k])] =
        static_cast<double>(k) + std::min(shuffle, 0.5) * noise * static_cast<double>(n);
  }
  std::vector<std::int32_t> shuffled = order;
  std::stable_sort(shuffled.begin(), shuffled.end(), [&](std::int32_t a, std::int32_t b) {
    return key[static_cast<std::size_t>(a)] < key[static_cast<std::size_t>(b)];
  });
  result.rank.resize(n);
  for (std::size_t k = 0; k < n; ++k)
    result.rank[static_cast<std::size_t>(shuffled[k])] = static_cast<std::int32_t>(k);
  return result;
}

// One run of the exact search. Returns whether the best or the bound moved.
bool PartSolver::search(std::int64_t target, std::size_t number, std::int64_t nodes,
                        Effort& effort) {
  const std::int64_t limit = std::min(nodes, effort.nodes_left);
  const SearchOutcome outcome = search_->run(target, variant(number), limit, options_.should_stop);
  effort.nodes += search_->nodes();
  effort.nodes_left -= search_->nodes();
  effort.was_stopped |= search_->was_stopped();
  if (outcome == SearchOutcome::kFound) {
    best_.offsets = search_->offsets();
    best_.height = height_of(part_.instance, best_.offsets);
    // As a placement order, for the local search: bottom to top.
    std::stable_sort(best_.order.begin(), best_.order.end(), [&](std::int32_t a, std::int32_t b) {
      const auto ia = static_cast<std::size_t>(a);
      const auto ib = static_cast<std::size_t>(b);
      const bool fixed_a = part_.instance.items[ia].fixed >= 0;
      const bool fixed_b = part_.instance.items[ib].fixed >= 0;
      return fixed_a != fixed_b ? fixed_a : best_.offsets[ia] < best_.offsets[ib];
    });
    best_.fit = GreedyFit::kFirst;
    method_ = "search";
    return true;
  }
  if (outcome == SearchOutcome::kExhausted) {
    lower_bound_ = std::max(lower_bound_, std::min(best_.height, search_->next_target()));
    return true;
  }
  return false;
}

void PartSolver::search_round(std::int64_t goal, std::int64_t nodes_a_run, Effort& effort) {
  if (!search_) {
    search_ = std::make_unique<SectionSearch>(part_.instance, options_.rules);
    orders_.resize(kGreedyOrders.size());
    for (const GreedyOrder name : kGreedyOrders)
      orders_[static_cast<std::size_t>(name)] = greedy_order(part_.instance, name);
  }
  // Starts again with new targets whenever something has moved.
  for (bool has_moved = true; has_moved && !is_done(goal);) {
    has_moved = false;
    const std::vector<std::int64_t> heights = targets(goal);
    for (std::size_t number = 0; number < kVariants.size() && !has_moved; ++number) {
      for (std::size_t t = 0; t < heights.size() && !has_moved; ++t) {
        stop_check(effort);
        if (effort.nodes_left <= 0 || effort.was_stopped) return;
        // The first ones of the portfolio go deepest.
        has_moved = search(heights[t], number,
                           std::max<std::int64_t>(100, nodes_a_run >> (number / 4)), effort);
      }
    }
  }
}

void PartSolver::local_round(std::int64_t goal, std::int64_t moves, Effort& effort) {
  const std::int64_t before = best_.height;
  LocalLimits limits;
  limits.enough = std::max(goal, lower_bound_);
  limits.moves = std::min(moves, effort.moves_left);
  limits.work = options_.greedy_limit * 40;
  limits.seed = options_.seed + static_cast<std::uint64_t>(local_runs_++);
  const std::int64_t made = improve_order(part_.instance, best_, limits, options_.should_stop);
  effort.moves += made;
  effort.moves_left -= made;
  if (best_.height < before) method_ = "local";
}

}  // namespace plimsoll::plan::layout_detail
