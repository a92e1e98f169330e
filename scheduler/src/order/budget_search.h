// SPDX-License-Identifier: Apache-2.0
// Depth-first search for an order within a budget, or a proof that there is none.
//
// Nouns: BudgetSearch, Attempt.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/order/solve.h"

#include "bound_table.h"
#include "late_commit.h"
#include "state.h"
#include "stop.h"

namespace plimsoll::order {

struct Attempt {
  enum class Outcome : std::uint8_t { kFound, kImpossible, kStopped };
  Outcome outcome = Outcome::kStopped;
  std::vector<std::int32_t> order;  // kFound
  // kImpossible: no order has a peak below this (bytes, above the budget that was tried).
  std::int64_t bound = 0;
};

// Searches one problem under one budget after another and keeps what it learns in between. Holds
// references to the problem and the stopper. Single owner. Iterative: memory is linear in the
// problem plus the table.
//
// Rules (each can be switched off), with S the executed set, B the budget:
// - forward commit: a ready operator with net <= 0 that fits is run at once, no alternative kept;
//   chain commit: so is o, x1, x2 ..., where each x becomes ready through those before it and is
//   the only one that does (or has net <= 0), once the level is back at S's. By submodularity every
//   order from S stays within B when X is moved to its front, because level(S|X) <= level(S|Y) for
//   each down-closed Y inside X.
// - late commit: the same for any X, once it has been run: a min cut (late_commit.h) shows that
//   level(S|X) is the least, and what was left to try between the two states is dropped.
// - backward commit: the mirror image, found once per budget from the end.
// - known bounds: a state's bound is the least over its children of the run level or the child's
//   bound; it holds at every budget.
class BudgetSearch {
 public:
  BudgetSearch(const Problem& problem, const SearchRules& rules, std::size_t table_bytes,
               Stopper& stopper);

  // Looks for an order with peak <= budget, for at most `work` units of State::work().
  Attempt attempt(std::int64_t budget, std::int64_t work);
  std::int64_t states() const { return states_; }
  std::int64_t work() const { return state_.work(); }

 private:
  struct Frame {
    std::size_t executed = 0;  // operators run when the state was reached
    std::size_t first = 0;     // its children in children_
    std::size_t next = 0;
    std::int64_t bound = 0;
    std::int64_t level = 0;
    StateKey key;
  };

  void hold_tail();
  void commit_all();
  bool commit_touched();
  bool try_chain(std::int32_t op);
  bool extend_chain();
  void commit_late();
  void open_frame();
  bool fits(std::int32_t op) const { return state_.level() + state_.rise(op) <= budget_; }
  bool finished() const { return state_.executed_count() + tail_.size() == held_.size(); }
  Attempt found() const;
  void close_frame();

  const Problem& problem_;
  const SearchRules& rules_;
  Stopper& stopper_;
  State state_;
  BoundTable table_;
  LateCommit late_commit_;
  std::int64_t budget_ = 0;
  std::int64_t states_ = 0;
  std::vector<Frame> frames_;
  std::vector<std::int32_t> children_;
  std::vector<std::int32_t> fresh_;  // of a chain: made ready by it
  std::vector<std::uint8_t> held_;   // placed last by a backward commit
  std::vector<std::int32_t> tail_;   // those, in reverse order
};

}  // namespace plimsoll::order
