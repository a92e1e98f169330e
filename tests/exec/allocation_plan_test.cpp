// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/exec/allocation_plan.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::exec {
namespace {

using ::testing::ElementsAre;

PlannedSlot slot(std::int64_t bytes, std::int64_t offset, std::int64_t death) {
  PlannedSlot s;
  s.capacity_bytes = bytes;
  s.offset = offset;
  s.death = death;
  return s;
}

std::vector<std::uint32_t> predecessors(const AllocationPlan& plan, std::size_t of) {
  const auto span = plan.predecessors(of);
  return {span.begin(), span.end()};
}

// The picture in allocation_plan.h.
TEST(AllocationPlan, PredecessorsAreWhatShowsUnderASlot) {
  const AllocationPlan plan({slot(256, 0, 1), slot(128, 64, 2), slot(64, 64, 3), slot(64, 128, 4)},
                            64);
  EXPECT_THAT(predecessors(plan, 0), ElementsAre(2, 3));
  EXPECT_THAT(predecessors(plan, 1), ElementsAre(0));
  EXPECT_THAT(predecessors(plan, 2), ElementsAre(1));
  EXPECT_THAT(predecessors(plan, 3), ElementsAre(1));
}

TEST(AllocationPlan, BadSlotsAreRefusedByNumber) {
  const auto message = [](const PlannedSlot& bad) -> std::string {
    try {
      AllocationPlan({slot(64, 0, 1), bad}, 64);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(slot(0, 0, 2)), ::testing::HasSubstr("slot 1"));
  EXPECT_THAT(message(slot(65, 0, 2)), ::testing::HasSubstr("65"));
  EXPECT_THAT(message(slot(64, 32, 2)), ::testing::HasSubstr("32"));
  EXPECT_THAT(message(slot(64, -64, 2)), ::testing::HasSubstr("-64"));
  PlannedSlot wide = slot(64, 0, 2);
  wide.minimum_bytes = 65;
  EXPECT_THAT(message(wide), ::testing::HasSubstr("65"));
}

RecordedStep random_step(std::mt19937_64& random) {
  RecordedStep step;
  step.blocks.resize(1 + random() % 30);
  const auto n = step.length();
  for (std::int64_t i = 0; i < n; ++i) {
    RecordedBlock& block = step.blocks[static_cast<std::size_t>(i)];
    block.key = random() % 3;
    block.bytes = 1 + static_cast<std::int64_t>(random() % 4000);
    block.death = i + 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n + 3));
    if (random() % 10 == 0) block.death = kNeverFreed;
  }
  return step;
}

TEST(PlanAllocations, NoTwoLivingSlotsShareAnAddressAndTheArenaIsNeverBelowTheLoad) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const RecordedStep step = random_step(random);
    const AllocationPlan plan = plan_allocations(step);
    ASSERT_THAT(find_overlap(plan), ::testing::IsEmpty());
    ASSERT_GE(plan.arena_bytes(), plan.load_bytes());
    ASSERT_TRUE(plan.covers(step));
    for (std::size_t i = 0; i < plan.size(); ++i)
      ASSERT_EQ(plan.slots()[i].escapes, step.escapes(i));
  }
}

TEST(PlanAllocations, ABlockThatReachesIntoTheNextStepSharesNothingWithItsBeginning) {
  // Block 1 is freed after the first allocation of the following step.
  const RecordedStep step{{{0, 64, 1}, {0, 64, 3}}};
  const AllocationPlan plan = plan_allocations(step);
  EXPECT_FALSE(plan.slots()[1].escapes);
  EXPECT_EQ(plan.arena_bytes(), 128);
}

TEST(PlanAllocations, SizesAndDeathsBecomeRunningMaxima) {
  const AllocationPlan first = plan_allocations(RecordedStep{{{7, 640, 1}, {7, 64, 2}}});
  const AllocationPlan second =
      plan_allocations(RecordedStep{{{7, 128, 2}, {7, 6400, 2}}}, {}, &first);
  EXPECT_EQ(second.slots()[0].capacity_bytes, 640);
  EXPECT_EQ(second.slots()[0].death, 2);
  EXPECT_EQ(second.slots()[1].capacity_bytes, 8000);  // a quarter above what has grown
}

TEST(FindOverlap, SeesAPlanWhoseLivingSlotsShareAnAddress) {
  const AllocationPlan plan({slot(128, 0, 2), slot(64, 64, 2)}, 64);
  EXPECT_THAT(find_overlap(plan), ElementsAre(0, 1));
}

// Case 10: one large block, many small ones that live across, the large one again. A splitting
// allocator needs nearly twice the peak; a plan needs the peak.
TEST(PlanAllocations, ALargeBlockComesBackWhereSmallOnesLiveAcross) {
  for (const std::int64_t small : {16, 50, 100}) {
    RecordedStep step;
    step.blocks.push_back({0, 1000 * 64, 1});
    for (int i = 0; i < 40; ++i) step.blocks.push_back({0, small * 64, 42});
    step.blocks.push_back({0, 1000 * 64, 42});
    const AllocationPlan plan = plan_allocations(step);
    EXPECT_EQ(plan.arena_bytes(), (1000 + 40 * small) * 64);
    EXPECT_EQ(plan.arena_bytes(), plan.load_bytes());
  }
}

}  // namespace
}  // namespace plimsoll::exec
