// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "optimal_gap.h"

namespace plimsoll::plan {
namespace {

TEST(OptimalSlow, AutoIsWithinThreePercentOfItOnAThousandSteps) {
  const testing::GapSum gap = testing::measure_gap(0, 1000);
  EXPECT_LE(gap.mean, 1.03);
  EXPECT_LE(gap.bound_mean, 1.03);
  EXPECT_EQ(gap.proved, gap.cases);
  RecordProperty("worst", gap.worst_at);
}

}  // namespace
}  // namespace plimsoll::plan
