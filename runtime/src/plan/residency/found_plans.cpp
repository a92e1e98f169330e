// SPDX-License-Identifier: Apache-2.0
#include "found_plans.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace plimsoll::plan {
namespace {

// The layout depends on the level alone, not on the budget that is asked for.
const FittedPlan& fitted(Found& found) {
  if (!found.fitted)
    found.fitted =
        fit_plan(*found.problem, found.decisions, found.replay, found.fit, found.least_ns);
  return *found.fitted;
}

// The smallest budget it may serve.
std::int64_t least_of(const Found& found) {
  return std::max(found.live_bytes, found.least_budget_bytes);
}

// In order of what they promise, ties by age.
template <typename Promise>
std::vector<std::size_t> sorted(std::size_t count, const Promise& promise) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return promise(a) < promise(b); });
  return order;
}

}  // namespace

Found& FoundPlans::add(Found found) {
  found_.push_back(std::move(found));
  return found_.back();
}

const Found* FoundPlans::fastest(std::int64_t budget_bytes, double limit_ns) {
  const Found* best = nullptr;
  const auto promise = [&](std::size_t i) {
    return std::tuple(found_[i].least_ns, found_[i].offloaded_bytes, found_[i].recomputed_ops);
  };
  for (const std::size_t i : sorted(found_.size(), promise)) {
    Found& it = found_[i];
    if (it.least_ns >= limit_ns) break;
    if (least_of(it) > budget_bytes || fitted(it).plan.arena_bytes > budget_bytes ||
        fitted(it).timeline.total_ns >= limit_ns)
      continue;
    best = &it;
    limit_ns = it.fitted->timeline.total_ns;
  }
  return best;
}

std::int64_t FoundPlans::least_budget(std::int64_t limit_bytes) {
  const auto promise = [&](std::size_t i) { return least_of(found_[i]); };
  for (const std::size_t i : sorted(found_.size(), promise)) {
    if (promise(i) >= limit_bytes) break;
    limit_bytes = std::min(limit_bytes, std::max(fitted(found_[i]).plan.arena_bytes, promise(i)));
  }
  return limit_bytes;
}

}  // namespace plimsoll::plan
