// SPDX-License-Identifier: Apache-2.0
#include "serenity.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "level_search.h"
#include "resident_bound.h"
#include "window.h"

namespace plimsoll::order {
namespace {

// What one part came to.
struct Part {
  std::vector<std::int32_t> order;  // empty: none found
  std::int64_t bound = 0;
  std::int64_t states = 0;
};

// The largest number that divides every size: the step in which budgets differ.
std::int64_t common_unit(const Problem& problem) {
  std::int64_t unit = 0;
  for (const std::int64_t bytes : problem.bytes) unit = std::gcd(unit, bytes);
  for (const std::int64_t extra : problem.extra) unit = std::gcd(unit, extra);
  return std::max<std::int64_t>(unit, 1);
}

// Adaptive soft budgeting on one part: halves the budget when a step times out, goes halfway up
// when there is no solution, and stops at the first solution, which is an optimum, since only
// states above the budget were dropped.
class SoftBudget {
 public:
  // `enough`: the bound of the whole, below which no part needs to go.
  SoftBudget(const Problem& problem, std::int64_t hard_budget, std::int64_t enough,
             const Options& options, Stopper& stopper)
      : problem_(problem), stopper_(stopper), unit_(common_unit(problem)), base_(hard_budget) {
    part_.bound = std::max(enough, resident_bound(problem).bytes);
    level_.most_states = std::max<std::int64_t>(1, options.serenity_states);
    level_.most_bytes = static_cast<std::size_t>(std::max<std::int64_t>(1, options.table_bytes));
    // In units below the hard budget, so that all figures are whole ones.
    none_ = -((base_ - (part_.bound - 1) + unit_ - 1) / unit_);
  }

  Part run() {
    using Outcome = LevelResult::Outcome;
    std::int64_t budget = 0;
    for (;;) {
      level_.budget = base_ + budget * unit_;
      LevelResult found = search_levels(problem_, level_, stopper_);
      part_.states += found.states;
      if (found.outcome == Outcome::kFound) {
        part_.order = std::move(found.order);
        part_.bound = std::max(part_.bound, profile(problem_, part_.order).peak);
        return std::move(part_);
      }
      if (found.outcome == Outcome::kStopped || found.outcome == Outcome::kMemory)
        return std::move(part_);
      if (found.outcome == Outcome::kFull) {
        timed_out_.push_back(budget);
      } else {
        none_ = budget;
        part_.bound = std::max(part_.bound, level_.budget + 1);
        while (!timed_out_.empty() && timed_out_.back() <= none_) timed_out_.pop_back();
      }
      if (timed_out_.empty()) return std::move(part_);  // nothing up to the hard budget
      budget = next_budget();
    }
  }

 private:
  // Between the highest budget without a solution and the lowest that timed out; where they meet,
  // the lowest once more, with twice the states a step.
  std::int64_t next_budget() {
    const std::int64_t low = timed_out_.back();
    if (low - none_ > 1) return none_ + (low - none_) / 2;
    level_.most_states *= 2;
    timed_out_.pop_back();
    return low;
  }

  const Problem& problem_;
  Stopper& stopper_;
  std::int64_t unit_;
  std::int64_t base_;  // the hard budget
  std::int64_t none_;  // the highest budget known to have no solution, in units above base_
  std::vector<std::int64_t> timed_out_;  // likewise, falling
  LevelOptions level_;
  Part part_;
};

}  // namespace

void run_serenity(const Problem& problem, const Options& options, Stopper& stopper,
                  Result& result) {
  if (problem.op_count() == 0) return;
  const Timeline timeline(problem, result.order);
  const std::vector<std::int32_t> marks = separators(problem, timeline);
  std::vector<std::int32_t> order;
  std::int64_t unsolved = 0;
  for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
    const std::int32_t begin = marks[i], end = marks[i + 1];
    Part part;
    std::int64_t hard_budget = timeline.levels.rest[begin];
    for (std::int32_t p = begin; p < end; ++p)
      hard_budget = std::max(hard_budget, timeline.levels.run[p]);
    if (end - begin == 1 || hard_budget <= result.lower_bound_bytes) {
      part.order.resize(end - begin);  // as it stands is good enough
      std::iota(part.order.begin(), part.order.end(), 0);
      if (end - begin == 1) part.bound = hard_budget;
    } else if (!stopper()) {
      const Problem window = window_problem(problem, timeline, begin, end);
      part = SoftBudget(window, hard_budget, result.lower_bound_bytes, options, stopper).run();
    }
    if (part.order.empty()) ++unsolved;
    for (std::int32_t p = begin; p < end; ++p)
      order.push_back(timeline.order[part.order.empty() ? p : begin + part.order[p - begin]]);
    result.states += part.states;
    if (part.bound > result.lower_bound_bytes) {
      result.lower_bound_bytes = part.bound;
      result.proof = Proof::kExhausted;
      result.bound_op = -1;
    }
  }
  result.separators.assign(marks.begin(), marks.end());
  result.segments = static_cast<std::int32_t>(marks.size()) - 1;
  if (unsolved > 0)
    result.note = fmt::format("{} of {} parts ran out of time or memory and keep program order",
                              unsolved, result.segments);
  result.peak_bytes = profile(problem, order).peak;
  result.order = std::move(order);
}

}  // namespace plimsoll::order
