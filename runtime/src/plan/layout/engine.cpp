// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_validate.h"

#include "plan/layout/part_solver.h"
#include "plan/layout/reduce.h"

namespace plimsoll::plan {
namespace {

using layout_detail::Effort;
using layout_detail::Part;
using layout_detail::PartSolver;
using layout_detail::Reduction;

// Solves one arena and writes its offsets into `result`.
class ArenaSolver {
 public:
  ArenaSolver(const LayoutProblem& problem, std::int32_t arena, const LayoutOptions& options,
              LayoutResult& result)
      : problem_(problem),
        arena_(arena),
        options_(options),
        result_(result),
        reduction_(layout_detail::reduce(problem, arena, options.reductions)) {}

  void run() {
    const std::int64_t capacity = problem_.arenas[static_cast<std::size_t>(arena_)].capacity_bytes;
    const std::int64_t unit = reduction_.unit_bytes;
    capacity_ = capacity == kUnlimitedBytes ? kUnlimitedBytes : capacity / unit;
    std::int64_t bound = reduction_.placed_top;
    for (const Part& part : reduction_.parts) bound = std::max(bound, part.base + part.load);
    const bool only_fit = capacity_ != kUnlimitedBytes && !options_.minimize;
    goal_ = only_fit ? std::max(bound, capacity_) : bound;
    for (const Part& part : reduction_.parts) {
      solvers_.push_back(std::make_unique<PartSolver>(part, options_, goal_ - part.base));
      goal_ = std::max(goal_, part.base + solvers_.back()->lower_bound());
    }
    Effort effort{.nodes_left = options_.node_limit, .moves_left = options_.local_limit};
    if (options_.algorithm != LayoutAlgorithm::kGreedy) improve(effort);
    write(capacity, effort);
  }

 private:
  // Improves the tallest part, again and again, until none stands above the goal.
  void improve(Effort& effort) {
    // Nothing that fits can be found where one part alone is known not to fit.
    if (bound() > capacity_) return;
    std::vector<std::size_t> order(solvers_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return top(a) > top(b); });
    for (const std::size_t p : order) {
      if (top(p) <= goal_) continue;
      improve_part(p, effort);
      // Later parts need not get below what an earlier one is stuck at.
      if (!has_capacity_goal()) goal_ = std::max(goal_, top(p));
      if (effort.was_stopped || bound() > capacity_) return;
    }
  }

  // Where the least height is wanted, the goal follows the bound up.
  void improve_part(std::size_t p, Effort& effort) {
    const std::int64_t base = reduction_.parts[p].base;
    for (bool has_risen = true; has_risen;) {
      const std::int64_t bound_before = solvers_[p]->lower_bound();
      solvers_[p]->improve(goal_ - base, effort);
      if (has_capacity_goal() || effort.was_stopped) return;
      goal_ = std::max(goal_, base + solvers_[p]->lower_bound());
      has_risen = top(p) > goal_ && solvers_[p]->lower_bound() > bound_before;
    }
  }

  bool has_capacity_goal() const { return capacity_ != kUnlimitedBytes && !options_.minimize; }

  std::int64_t top(std::size_t p) const { return reduction_.parts[p].base + solvers_[p]->height(); }

  std::int64_t bound() const {
    std::int64_t bound = reduction_.placed_top;
    for (std::size_t p = 0; p < solvers_.size(); ++p)
      bound = std::max(bound, reduction_.parts[p].base + solvers_[p]->lower_bound());
    return bound;
  }

  void place(std::int32_t origin, std::int64_t offset_units) {
    const auto index = static_cast<std::size_t>(origin);
    if (index < problem_.buffers.size())
      result_.offsets_bytes[index] = offset_units * reduction_.unit_bytes;
  }

  void write(std::int64_t capacity_bytes, const Effort& effort) {
    for (const auto& [origin, offset] : reduction_.placed) place(origin, offset);
    std::int64_t height = reduction_.placed_top;
    for (std::size_t p = 0; p < solvers_.size(); ++p) {
      const Part& part = reduction_.parts[p];
      for (std::size_t i = 0; i < part.instance.items.size(); ++i)
        place(part.instance.items[i].origin, part.base + solvers_[p]->offsets()[i]);
      if (top(p) > height) {
        height = top(p);
        result_.method = solvers_[p]->method();
      }
    }
    LayoutArenaResult arena;
    arena.load_bytes = layout_load_bytes(problem_, arena_);
    arena.lower_bound_bytes = bound() * reduction_.unit_bytes;
    arena.arena_bytes = height * reduction_.unit_bytes;
    if (arena.lower_bound_bytes > capacity_bytes) {
      arena.status = LayoutStatus::kInfeasible;
    } else if (arena.arena_bytes > capacity_bytes) {
      arena.status = LayoutStatus::kUnknown;
    } else if (arena.arena_bytes > arena.lower_bound_bytes) {
      arena.status = LayoutStatus::kFeasible;
    }
    result_.arenas[static_cast<std::size_t>(arena_)] = arena;
    result_.nodes += effort.nodes;
    result_.moves += effort.moves;
    result_.was_stopped |= effort.was_stopped;
    const bool is_open = arena.status == LayoutStatus::kUnknown ||
                         (arena.status == LayoutStatus::kFeasible && !has_capacity_goal());
    result_.limit_reached |= is_open && (effort.nodes_left <= 0 || effort.moves_left <= 0);
  }

  const LayoutProblem& problem_;
  std::int32_t arena_;
  const LayoutOptions& options_;
  LayoutResult& result_;
  Reduction reduction_;
  std::int64_t capacity_ = 0;
  std::int64_t goal_ = 0;
  std::vector<std::unique_ptr<PartSolver>> solvers_;
};

// Whether fixed buffers and reserved ranges contradict one another.
bool contradicts_itself(const LayoutProblem& problem) {
  LayoutProblem fixed;
  fixed.arenas = problem.arenas;
  for (LayoutArena& arena : fixed.arenas) arena.capacity_bytes = kUnlimitedBytes;
  fixed.reserved = problem.reserved;
  std::vector<std::int64_t> offsets;
  for (const LayoutBuffer& b : problem.buffers) {
    if (b.fixed_offset_bytes == kNoOffset) continue;
    fixed.buffers.push_back(b);
    offsets.push_back(b.fixed_offset_bytes);
  }
  return !offsets.empty() && validate_layout_sweep(fixed, offsets).has_value();
}

LayoutStatus worse(LayoutStatus a, LayoutStatus b) {
  const auto badness = [](LayoutStatus s) {
    switch (s) {
      case LayoutStatus::kOptimal:
        return 0;
      case LayoutStatus::kFeasible:
        return 1;
      case LayoutStatus::kUnknown:
        return 2;
      case LayoutStatus::kInfeasible:
        return 3;
    }
    return 3;
  };
  return badness(a) >= badness(b) ? a : b;
}

}  // namespace

LayoutResult solve_layout(const LayoutProblem& problem, const LayoutOptions& options) {
  check_layout_problem(problem);
  LayoutResult result;
  result.arenas.resize(problem.arenas.size());
  if (contradicts_itself(problem)) {
    for (std::size_t a = 0; a < problem.arenas.size(); ++a)
      result.arenas[a].load_bytes = layout_load_bytes(problem, static_cast<std::int32_t>(a));
    result.status = LayoutStatus::kInfeasible;
    return result;
  }
  result.offsets_bytes.resize(problem.buffers.size());
  for (std::size_t i = 0; i < problem.buffers.size(); ++i)
    result.offsets_bytes[i] = std::max<std::int64_t>(0, problem.buffers[i].fixed_offset_bytes);
  result.method = "reductions";
  for (std::size_t a = 0; a < problem.arenas.size(); ++a)
    ArenaSolver(problem, static_cast<std::int32_t>(a), options, result).run();
  result.status = LayoutStatus::kOptimal;
  for (const LayoutArenaResult& arena : result.arenas)
    result.status = worse(result.status, arena.status);
  return result;
}

}  // namespace plimsoll::plan
