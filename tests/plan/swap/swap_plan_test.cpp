// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/swap_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/swap_bound.h"

#include "exhaustive_swaps.h"
#include "step_nets.h"

namespace plimsoll::plan {
namespace {

using ::testing::HasSubstr;
using testing::least_over_plays;
using testing::least_over_subsets;
using testing::list_gaps;
using testing::peak_bytes;
using testing::random_sequence;
using ::testing::ThrowsMessage;

SwapPlan checked_plan(const AccessSequence& sequence, std::int64_t budget_bytes,
                      const SwapOptions& options = {}) {
  SwapPlan plan = plan_swaps(sequence, budget_bytes, options);
  validate_swap_plan(sequence, budget_bytes, plan);
  return plan;
}

SwapOpId op_at(std::int64_t index) { return SwapOpId(static_cast<std::size_t>(index)); }

// Operators 0 .. n-1 without scratch, one storage per letter: W write, R read, '.' untouched,
// '-' alive but untouched after its last access (transients die there), ' ' not alive.
AccessSequence draw(const std::vector<std::pair<std::string, std::int64_t>>& persistent,
                    const std::vector<std::pair<std::string, std::int64_t>>& transient) {
  AccessSequenceBuilder builder;
  const std::string& first = persistent.empty() ? transient[0].first : persistent[0].first;
  for (std::size_t op = 0; op < first.size(); ++op) builder.add_op(0);
  for (const auto* list : {&persistent, &transient})
    for (const auto& [line, bytes] : *list) {
      const bool lasts = list == &persistent;
      const SwapStorageId s =
          builder.add_storage(bytes, lasts ? StorageKind::kPersistent : StorageKind::kTransient);
      for (std::size_t op = 0; op < line.size(); ++op) {
        if (line[op] == 'R') builder.access(SwapOpId(op), s, Access::kRead);
        if (line[op] == 'W') builder.access(SwapOpId(op), s, Access::kWrite);
        if (line[op] == '-') builder.release_after(s, SwapOpId(op));
      }
    }
  return std::move(builder).build();
}

TEST(SwapPlan, MovesNothingWhereAllFits) {
  const AccessSequence sequence = draw({{"R..W", 4}}, {{"WR  ", 8}});
  const SwapPlan plan = checked_plan(sequence, 12);
  EXPECT_EQ(plan.moved_bytes(), 0);
  EXPECT_TRUE(plan.evictions.empty());
  EXPECT_EQ(plan.resident_bytes, (std::vector<std::int64_t>{12, 12, 4, 4}));
}

TEST(SwapPlan, CopiesACleanStorageOutOnce) {
  // The picture in the header: both gaps of the first storage must make room.
  const AccessSequence sequence = draw({}, {{"W..R..R ", 10}, {" WR     ", 10}, {"    WR  ", 10}});
  const SwapPlan plan = checked_plan(sequence, 10);
  EXPECT_EQ(plan.out_bytes, 10);
  EXPECT_EQ(plan.in_bytes, 20);
  ASSERT_EQ(plan.evictions.size(), 2U);
  EXPECT_TRUE(plan.evictions[0].copies_out);
  EXPECT_FALSE(plan.evictions[1].copies_out);
}

TEST(SwapPlan, CopiesAPersistentStorageThatIsOnlyReadInWithoutOut) {
  const AccessSequence sequence = draw({{"R...", 10}}, {{" WR ", 10}});
  const SwapPlan plan = checked_plan(sequence, 10);
  EXPECT_EQ(plan.out_bytes, 0);
  EXPECT_EQ(plan.in_bytes, 10);
}

TEST(SwapPlan, EvictsOverTheEndOfTheStep) {
  // Written in operator 2, read in 1: its only gap wraps around and must leave room in 3 and 0.
  const AccessSequence sequence = draw({{".RW.", 10}}, {{"WR  ", 3}, {"   W", 8}});
  const SwapPlan plan = checked_plan(sequence, 13);
  ASSERT_EQ(plan.evictions.size(), 1U);
  EXPECT_EQ(plan.evictions[0].evict_after, 2);
  EXPECT_EQ(plan.evictions[0].needed_at, 5);
  EXPECT_EQ(plan.evictions[0].return_from, 4);
  EXPECT_EQ(plan.moved_bytes(), 20);
}

TEST(SwapPlan, CopiesOutOnlyWhatIsNeverNeededAgain) {
  const AccessSequence sequence = draw({}, {{"W--- ", 10}, {" WR  ", 10}});
  const SwapPlan plan = checked_plan(sequence, 10);
  ASSERT_EQ(plan.evictions.size(), 1U);
  EXPECT_EQ(plan.evictions[0].needed_at, kNeverNeeded);
  EXPECT_EQ(plan.out_bytes, 10);
  EXPECT_EQ(plan.in_bytes, 0);
}

TEST(SwapPlan, KeepsWhatNoOperatorTouchesOutForFree) {
  const AccessSequence sequence = draw({{"....", 10}}, {{"WRR ", 10}});
  const SwapPlan plan = checked_plan(sequence, 10);
  ASSERT_EQ(plan.evictions.size(), 1U);
  EXPECT_EQ(plan.evictions[0].evict_after, -1);
  EXPECT_EQ(plan.moved_bytes(), 0);
}

TEST(SwapPlan, MovesTheInstanceThatThePreviousStepMade) {
  AccessSequenceBuilder builder;
  for (int op = 0; op < 4; ++op) builder.add_op(op == 1 ? 10 : 0);
  const SwapStorageId loss = builder.add_storage(10, StorageKind::kTransient);
  builder.access(op_at(3), loss, Access::kWrite);
  builder.access(op_at(0), loss, Access::kRead, Lap::kPreviousStep);
  builder.access(op_at(2), loss, Access::kRead, Lap::kPreviousStep);
  const AccessSequence sequence = std::move(builder).build();
  const SwapPlan plan = checked_plan(sequence, 10);
  ASSERT_EQ(plan.evictions.size(), 1U);
  EXPECT_EQ(plan.evictions[0].lap, Lap::kPreviousStep);
  EXPECT_EQ(plan.evictions[0].evict_after, 0);
  EXPECT_EQ(plan.evictions[0].needed_at, 2);
  EXPECT_EQ(plan.moved_bytes(), 20);
}

TEST(SwapPlan, NamesTheLeastBudgetAndTheOperatorThatPinsIt) {
  const AccessSequence sequence = draw({{"R.R.", 5}}, {{" WR ", 7}});
  const SwapPlan plan = checked_plan(sequence, 11);
  EXPECT_FALSE(plan.is_feasible);
  EXPECT_EQ(plan.minimum_budget_bytes, 12);
  EXPECT_EQ(plan.pinned_by, op_at(2));
  EXPECT_TRUE(plan.evictions.empty());
  EXPECT_TRUE(checked_plan(sequence, 12).is_feasible);
  EXPECT_FALSE(checked_plan(sequence, -3).is_feasible);
  EXPECT_THROW(plan_swaps(sequence, 12, {.effort = -1}), InvalidArgument);
}

TEST(SwapPlan, IsValidAndNeverBelowTheLeastOfRandomSmallSequences) {
  std::int64_t planned = 0;
  std::int64_t least = 0;
  int compared = 0;
  for (std::uint64_t seed = 0; compared < 10000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence = random_sequence(seed, {});
    if (list_gaps(sequence).size() > 9) continue;
    ++compared;
    const std::int64_t peak = peak_bytes(sequence);
    const std::int64_t minimum = checked_plan(sequence, 0).minimum_budget_bytes;
    const std::int64_t budget =
        minimum - 1 +
        static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(peak - minimum + 2));
    const SwapPlan plan = checked_plan(sequence, budget);
    const auto optimum = least_over_subsets(sequence, budget);
    ASSERT_EQ(plan.is_feasible, optimum.has_value());
    if (!optimum) continue;
    ASSERT_GE(plan.moved_bytes(), *optimum);
    planned += plan.moved_bytes();
    least += *optimum;
  }
  EXPECT_LE(static_cast<double>(planned), 1.03 * static_cast<double>(least));
}

TEST(SwapPlan, StaysNearTheBoundOnTheWatchedNetsAtEveryBudget) {
  for (const auto& [name, sequence] : testing::watched_steps()) {
    const std::int64_t peak = peak_bytes(sequence);
    for (const int percent : {90, 75, 60, 45, 33, 20}) {
      SCOPED_TRACE(::testing::Message() << name << " at " << percent << " %");
      const std::int64_t budget = peak / 100 * percent;
      const SwapPlan plan = checked_plan(sequence, budget);
      const SwapBound bound = swap_lower_bound(sequence, budget);
      EXPECT_TRUE(!plan.is_feasible || bound.is_tight);
      EXPECT_GE(plan.moved_bytes(), bound.bytes);
      EXPECT_LE(static_cast<double>(plan.moved_bytes()), 1.03 * static_cast<double>(bound.bytes));
    }
  }
}

TEST(SwapPlan, MovesHardlyMoreUnderALargerBudget) {
  for (const auto& [name, sequence] : testing::watched_steps()) {
    const std::int64_t peak = peak_bytes(sequence);
    std::int64_t last = std::numeric_limits<std::int64_t>::max() / 2;
    for (int percent = 25; percent <= 100; percent += 5) {
      SCOPED_TRACE(::testing::Message() << name << " at " << percent << " %");
      const SwapPlan plan = checked_plan(sequence, peak / 100 * percent);
      if (!plan.is_feasible) continue;
      EXPECT_LE(plan.moved_bytes(), last + last / 50);
      last = plan.moved_bytes();
    }
    EXPECT_EQ(checked_plan(sequence, peak).moved_bytes(), 0);
  }
}

// The same step with storages numbered backwards.
AccessSequence renumbered(const AccessSequence& sequence) {
  AccessSequenceBuilder builder;
  const std::int64_t n = sequence.op_count();
  for (std::int64_t op = 0; op < n; ++op) builder.add_op(sequence.scratch_bytes(op_at(op)));
  const auto lap = [&](std::int64_t p) { return p < n ? Lap::kThisStep : Lap::kPreviousStep; };
  for (std::int64_t s = sequence.storage_count() - 1; s >= 0; --s) {
    const SwapStorageId old(static_cast<std::size_t>(s));
    const StorageLife& life = sequence.life(old);
    const SwapStorageId storage = builder.add_storage(life.size_bytes, life.kind, life.mobility);
    for (const TimedAccess& access : sequence.accesses(old))
      builder.access(op_at(access.position % n), storage,
                     access.writes ? Access::kWrite : Access::kRead, lap(access.position));
    if (life.kind == StorageKind::kTransient)
      builder.release_after(storage, op_at(life.death % n), lap(life.death));
  }
  return std::move(builder).build();
}

TEST(SwapPlan, DoesNotDependOnHowStoragesAreNumbered) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence = random_sequence(seed, {.most_ops = 20, .most_storages = 12});
    const AccessSequence other = renumbered(sequence);
    const std::int64_t minimum = checked_plan(sequence, 0).minimum_budget_bytes;
    const std::int64_t budget = (minimum + peak_bytes(sequence)) / 2;
    const SwapPlan plan = checked_plan(sequence, budget);
    const SwapPlan other_plan = checked_plan(other, budget);
    EXPECT_EQ(plan.minimum_budget_bytes, other_plan.minimum_budget_bytes);
    EXPECT_EQ(plan.pinned_by, other_plan.pinned_by);
    EXPECT_EQ(swap_lower_bound(sequence, budget).bytes, swap_lower_bound(other, budget).bytes);
    EXPECT_EQ(plan_swaps(sequence, budget).evictions, plan.evictions);
  }
}

TEST(SwapPlan, StaysValidOnLargerRandomSequencesAtEveryEffort) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence = random_sequence(
        seed, {.most_ops = 60, .most_storages = 60, .most_accesses = 8, .most_bytes = 1000});
    const std::int64_t minimum = checked_plan(sequence, 0).minimum_budget_bytes;
    const std::int64_t peak = peak_bytes(sequence);
    for (const std::int64_t budget : {minimum, (2 * minimum + peak) / 3, peak - 1})
      for (const int effort : {0, 20, 500}) checked_plan(sequence, budget, {.effort = effort});
  }
}

TEST(SwapPlanChecker, SeesEveryWayToBeWrong) {
  const AccessSequence sequence =
      draw({{"R.....RW", 6}}, {{"W..R..R ", 10}, {" WR     ", 10}, {"    WR  ", 10}});
  constexpr std::int64_t kBudget = 16;
  const SwapPlan good = checked_plan(sequence, kBudget);
  ASSERT_EQ(good.evictions.size(), 2U);
  const auto expect = [&](const char* text, const std::function<void(SwapPlan&)>& spoil) {
    SwapPlan plan = good;
    spoil(plan);
    EXPECT_THAT([&] { validate_swap_plan(sequence, kBudget, plan); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  using P = SwapPlan;
  expect("the least budget", [](P& p) { ++p.minimum_budget_bytes; });
  expect("pins the least budget", [](P& p) { p.pinned_by = op_at(1); });
  expect("it is feasible", [](P& p) { p.is_feasible = false; });
  expect("unknown storage", [](P& p) { p.evictions[0].storage = SwapStorageId(9); });
  expect("evicted twice", [](P& p) { p.evictions[1] = p.evictions[0]; });
  expect("out of order", [](P& p) { std::swap(p.evictions[0], p.evictions[1]); });
  expect("follows no access", [](P& p) { p.evictions[1].evict_after = 4; });
  expect("another position", [](P& p) { ++p.evictions[0].needed_at; });
  expect("another position", [](P& p) { p.evictions[0].needed_at = kNeverNeeded; });
  expect("wrong copy out", [](P& p) { p.evictions[0].copies_out = false; });
  expect("wrong copy out", [](P& p) { p.evictions[1].copies_out = true; });
  expect("wrong copy in", [](P& p) { p.evictions[0].copies_in = false; });
  expect("outside its gap", [](P& p) { p.evictions[0].leave_before = 0; });
  expect("outside its gap", [](P& p) { p.evictions[0].return_from = 4; });
  expect("within the windows", [](P& p) { p.evictions[0].leave_before = 3; });
  expect("claims", [](P& p) { ++p.out_bytes; });
  expect("claims", [](P& p) { --p.in_bytes; });
  expect("resident bytes", [](P& p) { --p.resident_bytes[3]; });
  EXPECT_THAT([&] { validate_swap_plan(sequence, kBudget - 1, good); },
              ThrowsMessage<InvalidArgument>(HasSubstr("budget")));
  SwapPlan infeasible = checked_plan(sequence, 2);
  infeasible.evictions = good.evictions;
  EXPECT_THAT([&] { validate_swap_plan(sequence, 2, infeasible); },
              ThrowsMessage<InvalidArgument>(HasSubstr("infeasible and lists")));
}

TEST(SwapPlan, ChoosesAmongGapsWhereAnyPlayMayMoveAnything) {
  int compared = 0;
  for (std::uint64_t seed = 0; compared < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const AccessSequence sequence =
        random_sequence(seed, {.most_ops = 5, .most_storages = 3, .most_accesses = 3});
    bool is_persistent = true;
    for (std::int64_t s = 0; s < sequence.storage_count(); ++s)
      is_persistent &= sequence.life(SwapStorageId(static_cast<std::size_t>(s))).kind ==
                       StorageKind::kPersistent;
    if (!is_persistent || list_gaps(sequence).empty()) continue;
    ++compared;
    for (std::int64_t budget = 0; budget <= peak_bytes(sequence); ++budget)
      ASSERT_EQ(least_over_plays(sequence, budget), least_over_subsets(sequence, budget));
  }
}

}  // namespace
}  // namespace plimsoll::plan
