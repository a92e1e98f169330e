// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "equality_cases.h"

namespace plimsoll::train {
namespace {

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return as_test_name(info.param);
}

class Equality : public ::testing::TestWithParam<std::string> {};
class EqualityInHalfPrecision : public ::testing::TestWithParam<std::string> {};

TEST_P(Equality, FiveStepsOfSgdAreStocksBitForBitAtEveryBudget) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kSgd, false));
}

TEST_P(EqualityInHalfPrecision, FiveStepsAreStocksBitForBitAtEveryBudget) {
  expect_equal_at_every_budget(measure_needs(GetParam(), OptimizerKind::kSgd, true));
}

INSTANTIATE_TEST_SUITE_P(Models, Equality, ::testing::ValuesIn(short_models()), name_of);
INSTANTIATE_TEST_SUITE_P(Models, EqualityInHalfPrecision, ::testing::ValuesIn(autocast_models()),
                         name_of);

}  // namespace
}  // namespace plimsoll::train
