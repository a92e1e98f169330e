// SPDX-License-Identifier: Apache-2.0
#include "cover_state.h"

#include <algorithm>
#include <limits>

namespace plimsoll::plan::detail {
namespace {

std::vector<std::int64_t> negated(std::vector<std::int64_t> values) {
  for (std::int64_t& value : values) value = -value;
  return values;
}

}  // namespace

CoverState::CoverState(const CoverProblem& problem)
    : problem_(&problem),
      slack_(negated(problem.deficit_bytes)),
      chosen_(problem.gaps.size()),
      chosen_of_version_(problem.versions.size()) {}

std::int64_t CoverState::price(std::int32_t gap) const {
  const auto version = static_cast<std::size_t>(at(gap).version);
  const bool is_first = chosen_of_version_[version] == 0;
  return at(gap).in_bytes + (is_first ? problem_->versions[version].out_bytes : 0);
}

std::int64_t CoverState::saving(std::int32_t gap) const {
  const auto version = static_cast<std::size_t>(at(gap).version);
  const bool is_only = chosen_of_version_[version] == 1;
  return at(gap).in_bytes + (is_only ? problem_->versions[version].out_bytes : 0);
}

void CoverState::choose(std::int32_t gap) {
  cost_bytes_ += price(gap);
  chosen_[static_cast<std::size_t>(gap)] = 1;
  ++chosen_of_version_[static_cast<std::size_t>(at(gap).version)];
  add_size(at(gap), 1);
}

void CoverState::drop(std::int32_t gap) {
  cost_bytes_ -= saving(gap);
  chosen_[static_cast<std::size_t>(gap)] = 0;
  --chosen_of_version_[static_cast<std::size_t>(at(gap).version)];
  add_size(at(gap), -1);
}

bool CoverState::can_drop(std::int32_t gap) const {
  const CoverGap& dropped = at(gap);
  // Longer than a step, it counts twice in some rows; asking for both everywhere is on the safe
  // side, and such gaps are rare.
  const std::int64_t times = dropped.end - dropped.begin > problem_->row_count() ? 2 : 1;
  return least_slack(gap) >= times * dropped.size_bytes;
}

std::int64_t CoverState::least_slack(std::int32_t gap) const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for_each_run(at(gap).begin, at(gap).end, problem_->row_count(),
               [&](std::int64_t begin, std::int64_t end) {
                 least = std::min(least, slack_.min(begin, end));
               });
  return least;
}

void CoverState::add_size(const CoverGap& gap, std::int64_t sign) {
  for_each_run(
      gap.begin, gap.end, problem_->row_count(),
      [&](std::int64_t begin, std::int64_t end) { slack_.add(begin, end, sign * gap.size_bytes); });
}

}  // namespace plimsoll::plan::detail
