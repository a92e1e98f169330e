// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "equality_cases.h"

namespace plimsoll::train {
namespace {

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return as_test_name(info.param);
}

class EqualityOfEveryModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EqualityOfEveryModel, FiveStepsOfSgdAreStocksBitForBitAtEveryBudget) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kSgd, false));
}

TEST_P(EqualityOfEveryModel, FiveStepsOfAdamWAreStocksBitForBitAtEveryBudget) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kAdamW, false));
}

TEST_P(EqualityOfEveryModel, FiveStepsOfAdamInHalfPrecisionAreStocksBitForBit) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kAdam, true));
}

INSTANTIATE_TEST_SUITE_P(Models, EqualityOfEveryModel, ::testing::ValuesIn(every_model()), name_of);

}  // namespace
}  // namespace plimsoll::train
