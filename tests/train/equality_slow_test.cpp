// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "equality_cases.h"

namespace plimsoll::train {
namespace {

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return as_test_name(info.param);
}

class EqualityOfOtherOptimizers : public ::testing::TestWithParam<std::string> {};

TEST_P(EqualityOfOtherOptimizers, FiveStepsOfAdamWAreStocksBitForBitAtEveryBudget) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kAdamW, false));
}

TEST_P(EqualityOfOtherOptimizers, FiveStepsOfAdamInHalfPrecisionAreStocksBitForBit) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kAdam, true));
}

INSTANTIATE_TEST_SUITE_P(Models, EqualityOfOtherOptimizers, ::testing::ValuesIn(every_model()),
                         name_of);

}  // namespace
}  // namespace plimsoll::train
