// SPDX-License-Identifier: Apache-2.0
// A mixed-integer program, built column by column and solved by HiGHS.
//
// Noun: MixedProgram.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace plimsoll::plan {

class MixedProgram {
 public:
  using Terms = std::vector<std::pair<int, double>>;  // (column, factor)
  enum class Outcome : std::uint8_t { kOptimal, kInfeasible, kStopped };

  // Return the index of the new column.
  int add_binary();
  int add_real(double lower, double upper);
  void minimise(int column) { cost_[std::size_t(column)] = 1; }
  // sum of terms >= least; a column may stand in several terms.
  void add_row(const Terms& terms, double least);

  // Deterministic. kStopped: `nodes` were visited before the optimum was proved.
  Outcome solve(std::int64_t nodes);
  double bound() const { return bound_; }  // no solution is below it
  bool has_solution() const { return !solution_.empty(); }
  double value(int column) const { return solution_[std::size_t(column)]; }

 private:
  std::vector<double> cost_, lower_, upper_;
  std::vector<int> integrality_;
  std::vector<int> row_start_, row_columns_;
  std::vector<double> row_factors_, row_least_;
  std::vector<double> solution_;
  double bound_ = 0;
};

}  // namespace plimsoll::plan
