// SPDX-License-Identifier: Apache-2.0
// A set of chosen gaps with its cost and the slack of every row.
//
// Noun: CoverState. Invariant: slack of row r = sum of chosen sizes that cover r, minus r's
// deficit; cost = copies in of the chosen, and the copy out of each version that has one chosen.
#pragma once

#include <cstdint>
#include <vector>

#include "gap_problem.h"
#include "slack_tree.h"

namespace plimsoll::plan::detail {

class CoverState {
 public:
  // `problem` must outlive the state. Nothing is chosen.
  explicit CoverState(const CoverProblem& problem);

  bool is_chosen(std::int32_t gap) const { return chosen_[static_cast<std::size_t>(gap)] != 0; }
  bool is_cover() const { return slack_.min() >= 0; }
  std::int64_t cost_bytes() const { return cost_bytes_; }
  const std::vector<char>& chosen() const { return chosen_; }
  std::int32_t neediest_row() const { return static_cast<std::int32_t>(slack_.argmin()); }
  std::int64_t slack(std::int32_t row) const { return slack_.min(row, row + 1); }

  // What choosing the unchosen gap adds, what dropping the chosen one saves.
  std::int64_t price(std::int32_t gap) const;
  std::int64_t saving(std::int32_t gap) const;

  void choose(std::int32_t gap);
  void drop(std::int32_t gap);
  // True where the chosen gap is not needed.
  bool can_drop(std::int32_t gap) const;
  // True where the gap covers a row that lacks bytes.
  bool helps(std::int32_t gap) const { return least_slack(gap) < 0; }
  std::int64_t least_slack(std::int32_t gap) const;

 private:
  const CoverGap& at(std::int32_t gap) const {
    return problem_->gaps[static_cast<std::size_t>(gap)];
  }
  void add_size(const CoverGap& gap, std::int64_t sign);

  const CoverProblem* problem_;
  SlackTree slack_;
  std::vector<char> chosen_;
  std::vector<std::int32_t> chosen_of_version_;
  std::int64_t cost_bytes_ = 0;
};

}  // namespace plimsoll::plan::detail
