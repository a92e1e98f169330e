// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/swap_bound.h"

#include <limits>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "plimsoll/plan/swap_plan.h"

#include "exhaustive_swaps.h"
#include "step_nets.h"

namespace plimsoll::plan {
namespace {

using testing::least_over_plays;
using testing::least_over_subsets;
using testing::list_gaps;
using testing::peak_bytes;
using testing::random_sequence;

SwapOpId op_at(std::int64_t index) { return SwapOpId(static_cast<std::size_t>(index)); }

TEST(SwapBound, IsZeroWhereAllFitsAndNamesTheLeastBudgetWhereNothingDoes) {
  const AccessSequence sequence = random_sequence(3, {.most_ops = 8, .most_storages = 6});
  const SwapBound roomy = swap_lower_bound(sequence, peak_bytes(sequence));
  EXPECT_TRUE(roomy.is_feasible);
  EXPECT_TRUE(roomy.is_tight);
  EXPECT_EQ(roomy.bytes, 0);
  const SwapBound none = swap_lower_bound(sequence, 0);
  const SwapPlan plan = plan_swaps(sequence, 0);
  EXPECT_FALSE(none.is_feasible);
  EXPECT_EQ(none.minimum_budget_bytes, plan.minimum_budget_bytes);
  EXPECT_EQ(none.pinned_by, plan.pinned_by);
}

TEST(SwapBound, LetsFractionsOfAStorageLeave) {
  // Operator 1 lacks three of ten bytes: any plan of whole storages moves 20, the bound is 6.
  AccessSequenceBuilder builder;
  for (int op = 0; op < 3; ++op) builder.add_op(op == 1 ? 8 : 0);
  const SwapStorageId s = builder.add_storage(10, StorageKind::kTransient);
  builder.access(op_at(0), s, Access::kWrite);
  builder.access(op_at(2), s, Access::kRead);
  const AccessSequence sequence = std::move(builder).build();
  EXPECT_EQ(swap_lower_bound(sequence, 15).bytes, 6);
  EXPECT_EQ(plan_swaps(sequence, 15).moved_bytes(), 20);
}

TEST(SwapBound, NeverExceedsTheLeastOfRandomSmallSequences) {
  int compared = 0;
  for (std::uint64_t seed = 0; compared < 10000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence = random_sequence(seed, {});
    if (list_gaps(sequence).empty() || list_gaps(sequence).size() > 9) continue;
    const std::int64_t minimum = plan_swaps(sequence, 0).minimum_budget_bytes;
    const auto range = static_cast<std::uint64_t>(peak_bytes(sequence) - minimum);
    if (range == 0) continue;
    ++compared;
    const std::int64_t budget = minimum + static_cast<std::int64_t>(seed % range);
    const SwapBound bound = swap_lower_bound(sequence, budget);
    const std::int64_t optimum = least_over_subsets(sequence, budget).value();
    ASSERT_TRUE(bound.is_tight);
    ASSERT_LE(bound.bytes, optimum);
  }
}

TEST(SwapBound, IsTheLeastWhereStoragesAreBytesWithOneGapEach) {
  // Intervals of one size in a row: the matrix is totally unimodular, so fractions gain nothing.
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(::testing::Message() << "trial " << trial);
    AccessSequenceBuilder builder;
    constexpr std::uint64_t kOps = 9;
    for (std::uint64_t op = 0; op < kOps; ++op) builder.add_op(0);
    for (int k = 0; k < 8; ++k) {
      const std::uint64_t birth = random() % (kOps - 1);
      const std::uint64_t death = birth + 1 + random() % (kOps - 1 - birth);
      const SwapStorageId s = builder.add_storage(1, StorageKind::kTransient);
      builder.access(SwapOpId(birth), s, Access::kWrite);
      builder.access(SwapOpId(death), s, Access::kRead);
    }
    const AccessSequence sequence = std::move(builder).build();
    const std::int64_t minimum = plan_swaps(sequence, 0).minimum_budget_bytes;
    for (std::int64_t budget = minimum; budget <= peak_bytes(sequence); ++budget)
      ASSERT_EQ(swap_lower_bound(sequence, budget).bytes,
                least_over_subsets(sequence, budget).value());
  }
}

TEST(SwapBound, NeverExceedsTheLeastOfAnyPlay) {
  int compared = 0;
  for (std::uint64_t seed = 50000; compared < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence =
        random_sequence(seed, {.most_ops = 5, .most_storages = 3, .most_accesses = 3});
    bool is_persistent = true;
    for (std::int64_t s = 0; s < sequence.storage_count(); ++s)
      is_persistent &= sequence.life(SwapStorageId(static_cast<std::size_t>(s))).kind ==
                       StorageKind::kPersistent;
    if (!is_persistent || list_gaps(sequence).empty()) continue;
    ++compared;
    for (std::int64_t budget = 0; budget <= peak_bytes(sequence); ++budget) {
      const auto least = least_over_plays(sequence, budget);
      const SwapBound bound = swap_lower_bound(sequence, budget);
      ASSERT_EQ(bound.is_feasible, least.has_value());
      if (least) {
        ASSERT_LE(bound.bytes, *least);
      }
    }
  }
}

TEST(SwapBound, FallsAsTheBudgetGrowsAndRepeatsExactly) {
  for (const auto& [name, sequence] : testing::watched_steps()) {
    SCOPED_TRACE(name);
    const std::int64_t peak = peak_bytes(sequence);
    std::int64_t last = std::numeric_limits<std::int64_t>::max();
    for (int percent = 30; percent <= 100; percent += 10) {
      const std::int64_t budget = peak / 100 * percent;
      const SwapBound bound = swap_lower_bound(sequence, budget);
      EXPECT_LE(bound.bytes, last);
      EXPECT_EQ(bound.bytes, swap_lower_bound(sequence, budget).bytes);
      last = bound.bytes;
    }
  }
}

TEST(SwapBound, OfAStepTooLargeForTheLinearProgramIsCertainAllTheSame) {
  const AccessSequence sequence = testing::resnet_step({1, 1, 900, 1}, 16, 32);
  ASSERT_GT(list_gaps(sequence).size(), 30'000U) << list_gaps(sequence).size();
  const std::int64_t budget = peak_bytes(sequence) / 10;
  const SwapPlan plan = plan_swaps(sequence, budget, {.effort = 100});
  const SwapBound bound = swap_lower_bound(sequence, budget);
  ASSERT_TRUE(plan.is_feasible && bound.is_feasible);
  EXPECT_FALSE(bound.is_tight);
  EXPECT_LE(bound.bytes, plan.moved_bytes());
  EXPECT_GE(bound.bytes, plan.moved_bytes() * 9 / 10);
}

}  // namespace
}  // namespace plimsoll::plan
