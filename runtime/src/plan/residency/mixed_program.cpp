// SPDX-License-Identifier: Apache-2.0
#include "mixed_program.h"

#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <memory>

namespace plimsoll::plan {

int MixedProgram::add_binary() {
  const int column = add_real(0, 1);
  integrality_.back() = kHighsVarTypeInteger;
  return column;
}

int MixedProgram::add_real(double lower, double upper) {
  cost_.push_back(0);
  lower_.push_back(lower);
  upper_.push_back(upper);
  integrality_.push_back(kHighsVarTypeContinuous);
  return static_cast<int>(cost_.size()) - 1;
}

void MixedProgram::add_row(const Terms& terms, double least) {
  row_start_.push_back(static_cast<int>(row_columns_.size()));
  row_least_.push_back(least);
  Terms sorted = terms;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0 && sorted[i].first == sorted[i - 1].first) {
      row_factors_.back() += sorted[i].second;
      continue;
    }
    row_columns_.push_back(sorted[i].first);
    row_factors_.push_back(sorted[i].second);
  }
}

MixedProgram::Outcome MixedProgram::solve(std::int64_t nodes) {
  const std::unique_ptr<void, void (*)(void*)> highs(Highs_create(), Highs_destroy);
  Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
  Highs_setIntOptionValue(highs.get(), "threads", 1);
  Highs_setIntOptionValue(highs.get(), "random_seed", 0);
  Highs_setIntOptionValue(highs.get(), "mip_max_nodes", static_cast<HighsInt>(nodes));
  Highs_setDoubleOptionValue(highs.get(), "mip_rel_gap", 1e-6);
  const std::vector<double> row_most(row_least_.size(), Highs_getInfinity(highs.get()));
  Highs_passMip(
      highs.get(), static_cast<HighsInt>(cost_.size()), static_cast<HighsInt>(row_least_.size()),
      static_cast<HighsInt>(row_columns_.size()), kHighsMatrixFormatRowwise, kHighsObjSenseMinimize,
      0, cost_.data(), lower_.data(), upper_.data(), row_least_.data(), row_most.data(),
      row_start_.data(), row_columns_.data(), row_factors_.data(), integrality_.data());
  Highs_run(highs.get());
  Highs_getDoubleInfoValue(highs.get(), "mip_dual_bound", &bound_);
  HighsInt has_primal = 0;
  Highs_getIntInfoValue(highs.get(), "primal_solution_status", &has_primal);
  if (has_primal == kHighsSolutionStatusFeasible) {
    solution_.resize(cost_.size());
    Highs_getSolution(highs.get(), solution_.data(), nullptr, nullptr, nullptr);
  }
  const HighsInt status = Highs_getModelStatus(highs.get());
  if (status == kHighsModelStatusOptimal) return Outcome::kOptimal;
  return status == kHighsModelStatusInfeasible ? Outcome::kInfeasible : Outcome::kStopped;
}

}  // namespace plimsoll::plan
