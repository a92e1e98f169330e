// SPDX-License-Identifier: Apache-2.0
// Runs the stages on one part: greedy suite, exact search, local search, each with a share of the
// effort that grows from round to round.
//
// Nouns: PartSolver, Effort.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/plan/layout.h"

#include "plan/layout/greedy.h"
#include "plan/layout/reduce.h"
#include "plan/layout/search.h"

namespace plimsoll::plan::layout_detail {

// What is left to spend on an arena, and what was spent.
struct Effort {
  std::int64_t nodes_left = 0;
  std::int64_t moves_left = 0;
  std::int64_t nodes = 0;
  std::int64_t moves = 0;
  bool was_stopped = false;
};

// Single owner. All heights are in units, above the part's base.
class PartSolver {
 public:
  PartSolver(const Part& part, const LayoutOptions& options, std::int64_t enough);

  std::int64_t height() const { return best_.height; }
  std::int64_t lower_bound() const { return lower_bound_; }
  const Offsets& offsets() const { return best_.offsets; }
  const std::string& method() const { return method_; }

  // Works until the height is at most `goal`, the part is known to have no such layout, or the
  // effort is spent. Targets below the goal are tried too, the load first: a waste budget of zero
  // prunes best.
  void improve(std::int64_t goal, Effort& effort);

 private:
  bool is_done(std::int64_t goal) const;
  void search_round(std::int64_t goal, std::int64_t nodes_a_run, Effort& effort);
  bool search(std::int64_t target, std::size_t variant, std::int64_t nodes, Effort& effort);
  void local_round(std::int64_t goal, std::int64_t moves, Effort& effort);
  void stop_check(Effort& effort) const;
  SearchVariant variant(std::size_t number) const;
  std::vector<std::int64_t> targets(std::int64_t goal) const;

  const Part& part_;
  const LayoutOptions& options_;
  GreedyBest best_;
  std::string method_ = "greedy";
  std::int64_t lower_bound_ = 0;
  std::int64_t local_runs_ = 0;
  std::unique_ptr<SectionSearch> search_;
  std::vector<std::vector<std::int32_t>> orders_;
};

}  // namespace plimsoll::plan::layout_detail
