// SPDX-License-Identifier: Apache-2.0
// Whether going from one state to a later one can be regretted.
//
// Noun: LateCommit.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/order/problem.h"

#include "max_flow.h"
#include "state.h"

namespace plimsoll::order {

// With S the state after `from` operators and S|X the present one, both reached within the budget:
// if level(S|X) <= level(S|Y) for every down-closed Y inside X, then S completes within the budget
// exactly if S|X does, whatever else could have been tried in between. The least level(S|Y) is a
// min cut over X. Single owner; holds a reference to the problem.
class LateCommit {
 public:
  explicit LateCommit(const Problem& problem);

  // Whether no down-closed Y inside X has a lower level. O(flow on X).
  bool is_minimum(const State& state, std::size_t from);

 private:
  void add_storage(const State& state, std::size_t from, std::int32_t v);
  bool is_new(std::int32_t v);
  std::int32_t node(const State& state, std::size_t from, std::int32_t op) const {
    const std::int32_t at = state.executed_at(op);
    return at < static_cast<std::int32_t>(from) ? -1 : 2 + at - static_cast<std::int32_t>(from);
  }

  const Problem& problem_;
  MaxFlow flow_;
  std::int64_t present_ = 0;  // what X leaves alive
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
};

}  // namespace plimsoll::order
