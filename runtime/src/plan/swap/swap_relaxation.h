// SPDX-License-Identifier: Apache-2.0
// The linear program of swap_bound.h and the certificate of its value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gap_problem.h"

namespace plimsoll::plan::detail {

struct RelaxedCover {
  double value_bytes = 0;         // the linear program's value, in floating point
  std::vector<double> prices;     // per row, >= 0
  std::vector<double> fractions;  // per gap, in [0, 1]
};

// Solves the linear program; nothing where the solver does not reach optimality.
std::optional<RelaxedCover> solve_relaxation(const CoverProblem& problem);

// L(prices), in integers, rounded up; never above the least traffic, for any prices.
std::int64_t certified_bound(const CoverProblem& problem, const std::vector<double>& prices);

}  // namespace plimsoll::plan::detail
