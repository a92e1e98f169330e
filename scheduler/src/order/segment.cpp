// SPDX-License-Identifier: Apache-2.0
#include "segment.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "plimsoll/order/cut.h"

#include "level_search.h"
#include "resident_bound.h"
#include "window.h"

namespace plimsoll::order {
namespace {
constexpr std::int64_t kFirstWork = 1 << 18;
constexpr std::int64_t kFreeOpsAtOnce = 4000;  // a cut this small comes before any search
constexpr std::int64_t kMostBeamLinks = 1 << 22;
constexpr std::int64_t kRounds = 24;
constexpr int kBudgetsPerRound = 10;
}  // namespace

Segment::Segment(Problem problem, std::vector<std::vector<std::int32_t>> orders,
                 const Options& options, Stopper& stopper)
    : problem_(std::move(problem)),
      options_(options),
      stopper_(stopper),
      search_(problem_, options.rules, static_cast<std::size_t>(options.table_bytes), stopper),
      least_run_(problem_.op_count(), std::numeric_limits<std::int64_t>::max()),
      peak_(std::numeric_limits<std::int64_t>::max()) {
  for (auto& order : orders) offer(std::move(order));
  const ResidentBound resident = resident_bound(problem_);
  raise_bound(resident.bytes, Proof::kResident, resident.op);
}

// Keeps the order if it is better than the best so far.
void Segment::offer(std::vector<std::int32_t> order) {
  const Profile levels = profile(problem_, order);
  for (std::size_t i = 0; i < order.size(); ++i)
    least_run_[order[i]] = std::min(least_run_[order[i]], levels.run[i]);
  if (levels.peak >= peak_) return;
  peak_ = levels.peak;
  peak_op_ = order.empty() ? -1 : order[levels.peak_position];
  order_ = std::move(order);
}

void Segment::raise_bound(std::int64_t bound, Proof proof, std::int32_t op) {
  if (bound <= bound_) return;
  bound_ = std::min(bound, peak_);
  proof_ = proof;
  bound_op_ = op;
}

void Segment::cut_at_peak(std::int64_t most_free_ops) {
  if (peak_op_ < 0 || !options_.rules.min_cuts) return;
  CutOptions cut;
  cut.most_free_ops = most_free_ops;
  cut.stop = [this] { return stopper_(); };
  raise_bound(cut_bound(problem_, peak_op_, cut).bytes, Proof::kCut, peak_op_);
}

// Cuts at every operator whose level could still be above the bound, highest first.
bool Segment::cut_everywhere(std::int64_t target) {
  if (!options_.rules.min_cuts || cuts_done_) return false;
  cuts_done_ = true;
  std::vector<std::int32_t> ops(problem_.op_count());
  std::iota(ops.begin(), ops.end(), 0);
  std::sort(ops.begin(), ops.end(), [this](std::int32_t a, std::int32_t b) {
    return least_run_[a] != least_run_[b] ? least_run_[a] > least_run_[b] : a < b;
  });
  for (const std::int32_t o : ops) {
    if (least_run_[o] <= bound_ || bound_ >= peak_ || peak_ <= target || stopper_()) break;
    CutOptions cut;
    cut.stop = [this] { return stopper_(); };
    raise_bound(cut_bound(problem_, o, cut).bytes, Proof::kCut, o);
  }
  return true;
}

Attempt::Outcome Segment::try_budget(std::int64_t budget, std::int64_t work) {
  Attempt attempt = search_.attempt(budget, work);
  if (attempt.outcome == Attempt::Outcome::kFound) offer(std::move(attempt.order));
  if (attempt.outcome == Attempt::Outcome::kImpossible)
    raise_bound(options_.rules.budget_jumps ? attempt.bound : budget + 1, Proof::kExhausted, -1);
  return attempt.outcome;
}

// Closes in on the optimum with budgets between bound and peak. A budget that ran out of work says
// nothing; the next ones lie above it.
void Segment::search_budgets(std::int64_t work, std::int64_t target) {
  std::int64_t low = bound_;
  for (int i = 0; i < kBudgetsPerRound && peak_ > std::max(bound_, target) && !stopper_(); ++i) {
    low = std::max(low, std::max(bound_, target));
    if (low >= peak_) break;
    const std::int64_t budget = i == 0 ? low : low + (peak_ - 1 - low) / 2;
    if (try_budget(budget, work) == Attempt::Outcome::kStopped) low = budget + 1;
  }
}

// Takes windows around the peak out of the best order, wide ones after narrow ones, and looks for
// an order of each that stays below.
void Segment::improve_windows(std::int64_t target) {
  if (!options_.rules.windows) return;
  const std::int32_t ops = problem_.op_count();
  for (std::int32_t width = 24; width < ops * 2 && width <= 1536 && !stopper_();) {
    if (peak_ <= std::max(bound_, target)) return;
    Timeline timeline(problem_, order_);
    const std::int32_t middle = timeline.levels.peak_position;
    const std::int32_t begin = std::max(0, middle - width / 2);
    const std::int32_t end = std::min(ops, middle + width / 2 + 1);
    const Problem part = window_problem(problem_, timeline, begin, end);
    BudgetSearch search(part, options_.rules, 64 << 20, stopper_);
    const Attempt attempt = search.attempt(peak_ - 1, kFirstWork * 16);
    if (attempt.outcome != Attempt::Outcome::kFound) {
      width *= 2;
      continue;
    }
    std::vector<std::int32_t> order = order_;
    for (std::int32_t p = begin; p < end; ++p)
      order[p] = timeline.order[begin + attempt.order[p - begin]];
    // Another position may still have the same peak; the order counts as better once it is past.
    const Profile levels = profile(problem_, order);
    if (levels.peak == peak_ && levels.peak_position <= middle) return;
    if (levels.peak == peak_)
      order_ = std::move(order);
    else
      offer(std::move(order));
  }
}

// A beam over executed sets, for orders that depth-first search reaches late.
void Segment::improve_beam(std::int64_t width, std::int64_t target) {
  if (!options_.rules.beam || peak_ <= std::max(bound_, target)) return;
  LevelOptions level;
  level.budget = peak_ - 1;
  level.most_states = std::min(width, kMostBeamLinks / std::max(1, problem_.op_count()));
  level.keep_best = true;
  if (level.most_states < 8) return;
  LevelResult found = search_levels(problem_, level, stopper_);
  beam_states_ += found.states;
  if (found.outcome == LevelResult::Outcome::kFound) offer(std::move(found.order));
}

bool Segment::advance(std::int64_t target) {
  if (closed() || round_ >= kRounds) return false;
  const std::int64_t size = problem_.op_count();
  if (round_ == 0) cut_at_peak(kFreeOpsAtOnce);
  if (round_ == 3 || (round_ == 1 && size > 20000)) {
    cut_at_peak(-1);
    if (size <= 20000) cut_everywhere(target);
    improve_beam(512, target);
    improve_windows(target);
  }
  if (round_ == 8) improve_beam(8192, target);
  if (!closed()) search_budgets((kFirstWork << round_) + size * 64, target);
  ++round_;
  return true;
}

}  // namespace plimsoll::order
