// SPDX-License-Identifier: Apache-2.0
#include "budget_search.h"

#include <algorithm>
#include <limits>

namespace plimsoll::order {
namespace {
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kLongestChain = 96;
constexpr std::size_t kWidestChain = 8;
constexpr std::size_t kLargestLateCommit = 160;
constexpr std::int64_t kStatesPerStopCheck = 64;

// What holds before the operators that were taken off the end.
class Ending {
 public:
  explicit Ending(const Problem& problem)
      : problem_(problem),
        later_(problem.op_count()),
        taken_readers_(problem.storage_count(), 0),
        births_left_(problem.storage_count()),
        level_(problem.base_bytes) {
    for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
      if (problem.kept[v] != 0) level_ += problem.bytes[v];
      births_left_[v] = static_cast<std::int32_t>(problem.births[v].size());
    }
    for (std::int32_t o = problem.op_count() - 1; o >= 0; --o) {
      later_[o] = static_cast<std::int32_t>(problem.after[o].size());
      if (later_[o] == 0) sinks.push_back(o);
    }
  }

  // Takes `op`, a sink, off the end, unless it lowers the level or its run level does not fit.
  bool take_if_safe(std::int32_t op, std::int64_t budget) {
    std::int64_t net = 0, rise = problem_.extra[op];
    for (const std::int32_t v : problem_.results[op]) {
      if (births_left_[v] > 1) continue;
      rise += problem_.bytes[v];
      if (problem_.survives(v)) net += problem_.bytes[v];
    }
    for (const std::int32_t v : problem_.operands[op]) {
      if (problem_.kept[v] != 0 || taken_readers_[v] != 0) continue;
      net -= problem_.bytes[v];
      if (problem_.is_overwritten(v, op)) rise -= problem_.bytes[v];
    }
    if (net < 0 || level_ - net + rise > budget) return false;
    level_ -= net;
    for (const std::int32_t v : problem_.results[op]) --births_left_[v];
    for (const std::int32_t v : problem_.operands[op]) ++taken_readers_[v];
    for (const std::int32_t p : problem_.before[op])
      if (--later_[p] == 0) sinks.push_back(p);
    return true;
  }

  std::vector<std::int32_t> sinks;  // what nothing left waits for

 private:
  const Problem& problem_;
  std::vector<std::int32_t> later_;  // per operator: those left that wait for it
  std::vector<std::int32_t> taken_readers_;
  std::vector<std::int32_t> births_left_;
  std::int64_t level_;
};

}  // namespace

BudgetSearch::BudgetSearch(const Problem& problem, const SearchRules& rules,
                           std::size_t table_bytes, Stopper& stopper)
    : problem_(problem),
      rules_(rules),
      stopper_(stopper),
      state_(problem),
      table_(table_bytes),
      late_commit_(problem),
      held_(problem.op_count(), 0) {}

// Runs what was touched and must not wait. Returns whether anything ran.
bool BudgetSearch::commit_touched() {
  bool ran = false;
  std::vector<std::int32_t>& touched = state_.touched();
  while (!touched.empty()) {
    const std::int32_t op = touched.back();
    touched.pop_back();
    if (!state_.is_ready(op) || held_[op] != 0 || state_.net(op) > 0 || !fits(op)) continue;
    state_.run(op);
    ran = true;
  }
  return ran;
}

// Closes the state under the commit rules.
void BudgetSearch::commit_all() {
  if (!rules_.forward_commits) return;
  for (bool again = true; again;) {
    again = commit_touched();
    for (std::size_t i = 0; i < state_.ready().size(); ++i) {
      const std::int32_t op = state_.ready()[i];
      if (held_[op] != 0 || !fits(op)) continue;
      if (state_.net(op) <= 0) {
        state_.run(op);
      } else if (!rules_.chain_commits || !try_chain(op)) {
        continue;
      }
      commit_touched();
      again = true;
    }
  }
}

// Runs `op` and what follows from it alone, until the level is back; otherwise changes nothing.
bool BudgetSearch::try_chain(std::int32_t op) {
  const std::size_t mark = state_.executed_count();
  const std::int64_t base = state_.level();
  fresh_.clear();
  state_.run(op);
  for (const std::int32_t s : problem_.after[op])
    if (state_.is_ready(s) && held_[s] == 0) fresh_.push_back(s);
  while (state_.level() > base) {
    if (state_.executed_count() - mark > kLongestChain || !extend_chain()) {
      state_.undo_to(mark);
      state_.touched().clear();
      return false;
    }
  }
  return true;
}

bool BudgetSearch::extend_chain() {
  if (fresh_.empty() || fresh_.size() > kWidestChain) return false;
  std::size_t pick = fresh_.size();
  for (std::size_t i = 0; i < fresh_.size() && pick == fresh_.size(); ++i)
    if (state_.net(fresh_[i]) <= 0) pick = i;
  if (pick == fresh_.size()) {
    if (fresh_.size() != 1) return false;
    pick = 0;
  }
  const std::int32_t op = fresh_[pick];
  if (!fits(op)) return false;
  fresh_.erase(fresh_.begin() + static_cast<std::ptrdiff_t>(pick));
  state_.run(op);
  for (const std::int32_t s : problem_.after[op])
    if (state_.is_ready(s) && held_[s] == 0) fresh_.push_back(s);
  return true;
}

// From the end backwards, takes operators that may as well run last: those that do not lower the
// level and whose run level there fits.
void BudgetSearch::hold_tail() {
  std::fill(held_.begin(), held_.end(), std::uint8_t{0});
  tail_.clear();
  if (!rules_.backward_commits) return;
  Ending ending(problem_);
  // A sink that is refused once may pass later; a few rounds reach nearly all and keep this linear.
  for (int round = 0; round < 4; ++round) {
    const std::size_t held_before = tail_.size();
    std::vector<std::int32_t> refused;
    while (!ending.sinks.empty()) {
      const std::int32_t op = ending.sinks.back();
      ending.sinks.pop_back();
      if (ending.take_if_safe(op, budget_)) {
        held_[op] = 1;
        tail_.push_back(op);
      } else {
        refused.push_back(op);
      }
    }
    ending.sinks = std::move(refused);
    if (tail_.size() == held_before) break;
  }
}

// Looks back from the present state to the frames that it cannot be worse than, and drops what
// they had left to try.
void BudgetSearch::commit_late() {
  const std::int64_t level = state_.level();
  std::size_t first = frames_.size();
  bool has_choice = false;
  while (first > 0) {
    const Frame& frame = frames_[first - 1];
    const std::size_t end = first < frames_.size() ? frames_[first].first : children_.size();
    if (frame.level < level || state_.executed_count() - frame.executed > kLargestLateCommit) break;
    has_choice = has_choice || frame.next < end;
    --first;
  }
  for (int tries = 0; has_choice && first < frames_.size() && tries < 3; ++tries) {
    if (late_commit_.is_minimum(state_, frames_[first].executed)) {
      for (std::size_t i = first; i < frames_.size(); ++i) {
        const std::size_t end = i + 1 < frames_.size() ? frames_[i + 1].first : children_.size();
        frames_[i].next = end;
        frames_[i].bound = kHuge;
      }
      return;
    }
    first += (frames_.size() - first + 1) / 2;
  }
}

// Makes a frame of the current state, its children by (net, rise, index).
void BudgetSearch::open_frame() {
  ++states_;
  Frame frame;
  frame.executed = state_.executed_count();
  frame.first = frame.next = children_.size();
  frame.bound = kHuge;
  frame.level = state_.level();
  frame.key = state_.key();
  for (const std::int32_t op : state_.ready()) {
    if (held_[op] != 0) continue;
    if (fits(op))
      children_.push_back(op);
    else
      frame.bound = std::min(frame.bound, state_.level() + state_.rise(op));
  }
  std::sort(children_.begin() + static_cast<std::ptrdiff_t>(frame.first), children_.end(),
            [this](std::int32_t a, std::int32_t b) {
              if (state_.net(a) != state_.net(b)) return state_.net(a) < state_.net(b);
              if (state_.rise(a) != state_.rise(b)) return state_.rise(a) < state_.rise(b);
              return a < b;
            });
  frames_.push_back(frame);
}

// Records the top frame as failed and hands its bound to the one below.
void BudgetSearch::close_frame() {
  const Frame frame = frames_.back();
  frames_.pop_back();
  children_.resize(frame.first);
  if (rules_.failed_states) table_.raise(frame.key, frame.bound);
  if (!frames_.empty()) frames_.back().bound = std::min(frames_.back().bound, frame.bound);
}

Attempt BudgetSearch::found() const {
  Attempt result;
  result.outcome = Attempt::Outcome::kFound;
  result.order = state_.executed();
  result.order.insert(result.order.end(), tail_.rbegin(), tail_.rend());
  return result;
}

Attempt BudgetSearch::attempt(std::int64_t budget, std::int64_t work) {
  budget_ = budget;
  frames_.clear();
  children_.clear();
  state_.undo_to(0);
  Attempt result;
  if (state_.level() > budget) {
    result.outcome = Attempt::Outcome::kImpossible;
    result.bound = state_.level();
    return result;
  }
  hold_tail();
  const std::int64_t last_work = work < kHuge - state_.work() ? state_.work() + work : kHuge;
  state_.touched().clear();
  commit_all();
  if (finished()) return found();
  open_frame();
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    state_.undo_to(frame.executed);
    if (frame.next >= children_.size()) {
      result.bound = frame.bound;
      close_frame();
      continue;
    }
    if (state_.work() > last_work || (states_ % kStatesPerStopCheck == 0 && stopper_()))
      return result;
    state_.touched().clear();
    state_.run(children_[frame.next++]);
    commit_all();
    if (finished()) return found();
    if (rules_.failed_states) {
      const std::int64_t known = table_.find(state_.key());
      if (known > budget_) {
        frame.bound = std::min(frame.bound, known);
        continue;
      }
    }
    if (rules_.late_commits) commit_late();
    open_frame();
  }
  result.outcome = Attempt::Outcome::kImpossible;
  return result;
}

}  // namespace plimsoll::order
