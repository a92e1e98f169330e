// SPDX-License-Identifier: Apache-2.0
// One independent part of a problem on its way to an optimum.
//
// Noun: Segment.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plimsoll/order/solve.h"

#include "budget_search.h"
#include "stop.h"

namespace plimsoll::order {

// A problem, the best order known and a lower bound, with the stages that bring them together.
// Holds references to the options and the stopper. Single owner.
class Segment {
 public:
  // `orders`: at least one topological order of the problem.
  Segment(Problem problem, std::vector<std::vector<std::int32_t>> orders, const Options& options,
          Stopper& stopper);

  std::int64_t peak() const { return peak_; }
  std::int64_t bound() const { return bound_; }
  const std::vector<std::int32_t>& order() const { return order_; }
  Proof proof() const { return proof_; }
  std::int32_t bound_op() const { return bound_op_; }  // kResident, kCut
  std::int64_t states() const { return search_.states() + beam_states_; }
  std::int64_t work() const { return search_.work(); }
  bool closed() const { return peak_ <= bound_; }

  // Runs the next stage towards `target`: there is no need to go below it. Returns false when
  // nothing is left to try.
  bool advance(std::int64_t target);

 private:
  void offer(std::vector<std::int32_t> order);
  void raise_bound(std::int64_t bound, Proof proof, std::int32_t op);
  void cut_at_peak(std::int64_t most_free_ops);
  bool cut_everywhere(std::int64_t target);
  void search_budgets(std::int64_t work, std::int64_t target);
  Attempt::Outcome try_budget(std::int64_t budget, std::int64_t work);
  void improve_beam(std::int64_t width, std::int64_t target);
  void improve_windows(std::int64_t target);

  Problem problem_;
  const Options& options_;
  Stopper& stopper_;
  BudgetSearch search_;
  std::vector<std::int32_t> order_;
  std::vector<std::int64_t> least_run_;  // per operator, over the orders seen
  std::int64_t peak_ = 0;
  std::int32_t peak_op_ = -1;
  std::int64_t bound_ = 0;
  Proof proof_ = Proof::kNone;
  std::int32_t bound_op_ = -1;
  std::int64_t beam_states_ = 0;
  std::int64_t round_ = 0;
  bool cuts_done_ = false;
};

}  // namespace plimsoll::order
