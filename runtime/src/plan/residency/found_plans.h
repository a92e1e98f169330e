// SPDX-License-Identifier: Apache-2.0
// Plans that a search found, kept as decisions and made only when that is asked for.
//
// Nouns: Found, FoundPlans.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>

#include "fit.h"
#include "replay.h"

namespace plimsoll::plan {

struct Found {
  std::size_t order = 0;  // index of its problem
  const Problem* problem = nullptr;
  Decisions decisions;
  ReplayOptions replay;
  FitOptions fit;
  std::int64_t least_budget_bytes = 0;  // for no smaller budget, even where its arena fits
  std::int64_t live_bytes = 0;          // the same: no layout needs less
  double least_ns = 0;                  // no layout is faster
  std::int64_t offloaded_bytes = 0;
  std::int64_t recomputed_ops = 0;
  std::optional<FittedPlan> fitted;
};

class FoundPlans {
 public:
  static constexpr double kAnyTime = std::numeric_limits<double>::infinity();

  bool empty() const { return found_.empty(); }
  Found& add(Found found);
  // The fastest below `limit_ns` whose arena fits; those that cannot win are not made. Null: there
  // is none.
  const Found* fastest(std::int64_t budget_bytes, double limit_ns = kAnyTime);
  // The smallest budget below `limit_bytes` that one of them keeps, else the limit.
  std::int64_t least_budget(std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());

 private:
  std::deque<Found> found_;  // what was handed out stays where it is
};

}  // namespace plimsoll::plan
