// SPDX-License-Identifier: Apache-2.0
#include "serenity.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "level_search.h"
#include "resident_bound.h"
#include "window.h"

namespace plimsoll::order {
namespace {

constexpr std::int64_t kMostLinks = 1 << 26;  // 8 bytes each

// What one part came to.
struct Part {
  std::vector<std::int32_t> order;  // empty: none found
  std::int64_t bound = 0;
  std::int64_t states = 0;
};

// Halves the soft budget when a step times out, goes halfway up when there is no solution, and
// stops at the first solution, which is an optimum: only states above the budget were dropped.
Part schedule_part(const Problem& problem, std::int64_t hard_budget, const Options& options,
                   Stopper& stopper) {
  Part part;
  part.bound = resident_bound(problem).bytes;
  LevelOptions level;
  level.budget = hard_budget;
  level.most_states =
      std::min(options.serenity_states, kMostLinks / std::max<std::int64_t>(1, problem.op_count()));
  std::int64_t none = part.bound - 1;        // the highest budget known to have no solution
  std::int64_t timed_out = hard_budget + 1;  // the lowest that timed out
  while (level.budget > none && level.budget < timed_out) {
    LevelResult found = search_levels(problem, level, stopper);
    part.states += found.states;
    if (found.outcome == LevelResult::Outcome::kFound) {
      part.order = std::move(found.order);
      part.bound = profile(problem, part.order).peak;
      break;
    }
    if (found.outcome == LevelResult::Outcome::kStopped) break;
    if (found.outcome == LevelResult::Outcome::kFull) {
      timed_out = level.budget;
      level.budget = std::max(level.budget / 2, none + (timed_out - none) / 2);
    } else {
      none = level.budget;
      part.bound = std::max(part.bound, none + 1);
      level.budget = none + (timed_out - none) / 2;
    }
  }
  return part;
}

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
    if (end - begin > 1 && !stopper()) {
      part = schedule_part(window_problem(problem, timeline, begin, end), hard_budget, options,
                           stopper);
    } else if (end - begin == 1) {
      part.order = {0};
      part.bound = hard_budget;
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
    result.note = fmt::format("{} of {} parts timed out at every budget and keep program order",
                              unsolved, result.segments);
  result.peak_bytes = profile(problem, order).peak;
  result.order = std::move(order);
}

}  // namespace plimsoll::order
