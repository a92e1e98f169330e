// SPDX-License-Identifier: Apache-2.0
// Prices of memory per row, from the Lagrangian of the covering problem.
//
// Nouns: price (bytes moved that one byte less in this row would save), relief of a gap (the sum
// of the prices of its rows, per byte).
#pragma once

#include <cstdint>
#include <vector>

#include "gap_problem.h"

namespace plimsoll::plan::detail {

struct RowPrices {
  std::vector<double> prices;     // per row, >= 0
  std::vector<double> fractions;  // per gap: how much of it the relaxation evicts, about
  double bound_bytes = 0;         // value of the Lagrangian at `prices`, in floating point
};

// Runs `rounds` steps of the volume algorithm. `known_bytes` is the cost of some cover.
// Cost: O(rounds x (rows + gaps)). Deterministic.
// Source: Barahona and Anbil, "The volume algorithm: producing primal solutions with a subgradient
// method", Mathematical Programming 2000.
RowPrices price_rows(const CoverProblem& problem, double known_bytes, int rounds);

// The relief of every gap at these prices.
std::vector<double> reliefs(const CoverProblem& problem, const std::vector<double>& prices);

}  // namespace plimsoll::plan::detail
