// SPDX-License-Identifier: Apache-2.0
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/plan/layout_validate.h"

#include "random_problem.h"

namespace plimsoll::plan {
namespace {

using Kind = LayoutViolation::Kind;

// Two buffers of 4 bytes, live together, in an arena of 8.
LayoutProblem pair_of_buffers() {
  LayoutProblem problem;
  problem.buffers.resize(2);
  for (LayoutBuffer& b : problem.buffers) {
    b.lifetime = {0, 4};
    b.size_bytes = 4;
  }
  problem.arenas[0].capacity_bytes = 8;
  return problem;
}

void expect_both(const LayoutProblem& problem, const std::vector<std::int64_t>& offsets,
                 Kind kind) {
  const auto simple = validate_layout(problem, offsets);
  const auto sweep = validate_layout_sweep(problem, offsets);
  ASSERT_TRUE(simple.has_value());
  ASSERT_TRUE(sweep.has_value());
  EXPECT_EQ(simple->kind, kind) << simple->message;
  EXPECT_EQ(sweep->kind, kind) << sweep->message;
  EXPECT_FALSE(simple->message.empty());
}

TEST(ValidateLayout, AcceptsWhatIsRight) {
  EXPECT_FALSE(validate_layout(pair_of_buffers(), {0, 4}).has_value());
  EXPECT_FALSE(validate_layout_sweep(pair_of_buffers(), {4, 0}).has_value());
}

TEST(ValidateLayout, SeesAMissingOffset) { expect_both(pair_of_buffers(), {0}, Kind::kCount); }

TEST(ValidateLayout, SeesANegativeOffset) {
  expect_both(pair_of_buffers(), {-1, 4}, Kind::kNegative);
}

TEST(ValidateLayout, SeesATopThatLeaves64Bits) {
  expect_both(pair_of_buffers(), {0, kUnlimitedBytes - 2}, Kind::kNegative);
}

TEST(ValidateLayout, SeesABrokenAlignment) {
  LayoutProblem problem = pair_of_buffers();
  problem.buffers[1].alignment_bytes = 3;
  expect_both(problem, {0, 4}, Kind::kAlignment);
}

TEST(ValidateLayout, SeesAMovedFixedBuffer) {
  LayoutProblem problem = pair_of_buffers();
  problem.buffers[1].fixed_offset_bytes = 4;
  expect_both(problem, {4, 0}, Kind::kFixed);
}

TEST(ValidateLayout, SeesACapacityThatIsExceeded) {
  expect_both(pair_of_buffers(), {0, 5}, Kind::kCapacity);
}

TEST(ValidateLayout, SeesAnOverlap) { expect_both(pair_of_buffers(), {0, 3}, Kind::kOverlap); }

TEST(ValidateLayout, SeesABufferInAReservedRange) {
  LayoutProblem problem = pair_of_buffers();
  problem.reserved.push_back({0, {3, 5}, {7, 8}});
  expect_both(problem, {0, 4}, Kind::kReserved);
  problem.reserved[0].time = {4, 5};
  EXPECT_FALSE(validate_layout(problem, {0, 4}).has_value());
}

TEST(ValidateLayout, KnowsThatABufferIsAwayInItsGap) {
  LayoutProblem problem = pair_of_buffers();
  problem.buffers[0].lifetime = {0, 6};
  problem.buffers[0].gaps = {{{0, 4}, {}}};
  EXPECT_FALSE(validate_layout(problem, {0, 0}).has_value());
  problem.buffers[0].gaps = {{{0, 3}, {}}};
  expect_both(problem, {0, 0}, Kind::kOverlap);
  problem.buffers[0].gaps = {{{0, 4}, {0, 1}}};
  EXPECT_FALSE(validate_layout_sweep(problem, {0, 1}).has_value());
}

TEST(ValidateLayout, ArenasDoNotMeet) {
  LayoutProblem problem = pair_of_buffers();
  problem.arenas.resize(2);
  problem.buffers[1].arena = 1;
  EXPECT_FALSE(validate_layout(problem, {0, 0}).has_value());
  EXPECT_FALSE(validate_layout_sweep(problem, {0, 0}).has_value());
}

TEST(ValidateLayout, BothFormsAgreeOnRandomLayouts) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    LayoutProblem problem = testing::random_problem(seed, {.most_time = 10,
                                                           .with_alignment = true,
                                                           .with_gaps = true,
                                                           .with_windows = true,
                                                           .with_reserved = true});
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> offsets;
    for (const LayoutBuffer& b : problem.buffers)
      offsets.push_back(static_cast<std::int64_t>(random() % 12) * b.alignment_bytes);
    const auto simple = validate_layout(problem, offsets);
    ASSERT_EQ(simple.has_value(), validate_layout_sweep(problem, offsets).has_value())
        << "seed " << seed;
    wrong += simple.has_value() ? 1 : 0;
  }
  EXPECT_GT(wrong, 500);
  EXPECT_LT(wrong, 4900);
}

}  // namespace
}  // namespace plimsoll::plan
