// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/exec/planned_resource.h"
#include "plimsoll/exec/replay_engine.h"

#include "live_blocks.h"
#include "program_runner.h"

namespace plimsoll::exec {
namespace {

using testing::LiveBlocks;
using testing::Program;
using testing::ProgramRunner;
using testing::TestMemory;

PlannedResourceOptions inline_planning() {
  PlannedResourceOptions options;
  options.replay.plan_in_background = false;
  return options;
}

// A planned resource over test memory, and a runner on it.
struct Bench {
  explicit Bench(const PlannedResourceOptions& options = inline_planning())
      : resource(memory, options), runner(resource, live) {
    resource.step_mark();
  }
  ~Bench() {
    runner.free_all();
    EXPECT_EQ(runner.problem(), "");
  }
  ReplayStatistics statistics() { return resource.engine().statistics(); }
  // Runs steps until one is answered wholly from a plan; returns how many that took.
  int steps_until_planned(const Program& program, int most = 20) {
    for (int step = 1; step <= most; ++step) {
      const std::int64_t before = statistics().planned + statistics().escaped;
      const std::int64_t refused = statistics().refused;
      runner.run(program);
      const std::int64_t answered = statistics().planned + statistics().escaped - before;
      if (answered == static_cast<std::int64_t>(program.size()) && refused == statistics().refused)
        return step;
    }
    return most + 1;
  }
  TestMemory memory;
  LiveBlocks live;
  PlannedResource resource;
  ProgramRunner runner;
};

const Program kTraining = {{1, 1000, 4}, {2, 500, 1}, {3, 4000, 2}, {2, 500, 3},
                           {1, 64, 2},   {4, 900, 4}, {1, 333, 1},  {5, 2000, 2}};
const Program kEvaluation = {{1, 1000, 1}, {2, 500, 1}, {9, 4000, 2}, {9, 50, 1}};

TEST(Replay, AProgramIsPlannedAfterTwoRepeats) {
  Bench bench;
  EXPECT_LE(bench.steps_until_planned(kTraining), 4);
  const std::int64_t upstream = bench.memory.stats().allocations;
  for (int i = 0; i < 10; ++i) bench.runner.run(kTraining);
  EXPECT_EQ(bench.memory.stats().allocations, upstream);  // nothing reaches the upstream any more
}

TEST(Replay, AProgramWithoutKeysIsToldApartBySize) {
  Program program = kTraining;
  for (auto& block : program) block.key = 0;
  Bench bench;
  EXPECT_LE(bench.steps_until_planned(program), 4);
}

TEST(Replay, AChangedProgramConvergesToANewPlanInAFewSteps) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  Program changed = kTraining;
  changed.erase(changed.begin() + 2);
  changed.insert(changed.begin() + 4, {77, 5000, 2});
  EXPECT_LE(bench.steps_until_planned(changed), 6);
}

TEST(Replay, TrainingEvaluationAndALastBatchKeepTheirPlans) {
  Program last = kTraining;
  for (auto& block : last) block.bytes = block.bytes / 5 + 1;
  Bench bench;
  for (int epoch = 0; epoch < 8; ++epoch) {
    for (int i = 0; i < 4; ++i) bench.runner.run(kTraining);
    bench.runner.run(last);
    bench.runner.run(kEvaluation);
    bench.runner.run(kEvaluation);
  }
  const ReplayStatistics before = bench.statistics();
  for (int i = 0; i < 4; ++i) bench.runner.run(kTraining);
  bench.runner.run(last);
  bench.runner.run(kEvaluation);
  bench.runner.run(kEvaluation);
  const ReplayStatistics after = bench.statistics();
  EXPECT_EQ(after.missed, before.missed);
  EXPECT_EQ(after.plans_made, before.plans_made);
}

TEST(Replay, StepsThatAlternateArePlannedToo) {
  Bench bench;
  for (int i = 0; i < 12; ++i) {
    bench.runner.run(kTraining);
    bench.runner.run(kEvaluation);
  }
  const ReplayStatistics before = bench.statistics();
  bench.runner.run(kTraining);
  bench.runner.run(kEvaluation);
  EXPECT_EQ(bench.statistics().missed, before.missed);
}

TEST(Replay, SizesThatGrowNeedEverFewerPlans) {
  Bench bench;
  Program program = kTraining;
  for (int step = 0; step < 400; ++step) {
    program[2].bytes += 100;
    bench.runner.run(program);
  }
  // From 4,000 to 44,000 bytes with a quarter of room each time: about 11 plans, not 400.
  EXPECT_LE(bench.statistics().plans_made, 20);
  EXPECT_GT(bench.statistics().planned, 8 * 400 * 7 / 10);
}

TEST(Replay, ALateFreeKeepsItsBytes) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  void* kept = bench.runner.request(kTraining[0]);
  void* pointer = nullptr;
  std::int64_t bytes = 0;
  std::mt19937_64 random(1);
  ASSERT_TRUE(bench.runner.take_random(random, &pointer, &bytes));
  while (pointer != kept) {  // give back what was not wanted
    EXPECT_EQ(bench.live.remove(pointer), "");
    bench.resource.deallocate(pointer, bytes, device::Queue::kCompute);
    ASSERT_TRUE(bench.runner.take_random(random, &pointer, &bytes));
  }
  ASSERT_TRUE(bench.resource.engine().owns(kept));
  for (std::size_t i = 1; i < kTraining.size(); ++i) bench.runner.request(kTraining[i]);
  bench.resource.step_mark();
  for (int i = 0; i < 5; ++i) bench.runner.run(kTraining);
  EXPECT_GT(bench.statistics().refused, 0);  // its own slot, at least
  EXPECT_EQ(bench.runner.problem(), "");     // and nobody was given its bytes
  EXPECT_EQ(bench.live.remove(kept), "");
  bench.resource.deallocate(kept, bytes, device::Queue::kCompute);
}

TEST(Replay, ABlockThatIsKeptForEverDoesNotHauntItsPlaceForEver) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  Program keeps_one = kTraining;
  keeps_one[2].lives_for = 1'000'000;
  bench.runner.run(keeps_one);
  for (int i = 0; i < 12; ++i) bench.runner.run(kTraining);
  const std::int64_t refused = bench.statistics().refused;
  EXPECT_GT(refused, 0);
  for (int i = 0; i < 12; ++i) bench.runner.run(kTraining);
  EXPECT_EQ(bench.statistics().refused, refused);
}

TEST(Replay, TheLaneDetachesWhereNothingFitsAndComesBackAtTheNextStep) {
  PlannedResourceOptions options = inline_planning();
  options.replay.detach_after = 3;
  Bench bench(options);
  bench.steps_until_planned(kTraining);
  for (int i = 0; i < 5; ++i) bench.runner.request({99, 100000 + i, 1});
  bench.resource.step_mark();
  EXPECT_EQ(bench.statistics().detached, 1);
  const std::int64_t missed = bench.statistics().missed;
  bench.runner.run(kTraining);
  EXPECT_EQ(bench.statistics().missed, missed);
}

TEST(Replay, DroppedInsertedAndSwappedRequestsCostOnlyThemselves) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  const auto misses_of = [&](const Program& program) {
    const std::int64_t before = bench.statistics().missed;
    bench.runner.run(program);
    const std::int64_t misses = bench.statistics().missed - before;
    for (int i = 0; i < 12; ++i) bench.runner.run(kTraining);
    return misses;
  };
  Program dropped = kTraining;
  dropped.erase(dropped.begin() + 2);
  EXPECT_EQ(misses_of(dropped), 0);
  Program inserted = kTraining;
  inserted.insert(inserted.begin() + 3, {42, 100, 1});
  EXPECT_EQ(misses_of(inserted), 1);
  Program resized = kTraining;
  resized[5].bytes *= 3;
  EXPECT_EQ(misses_of(resized), 1);
}

// Case 16: a plan that gives one address to two living tensors. Neither the replay nor the user may
// trust it: the second hand-out is refused and served elsewhere.
TEST(Replay, AnOverlapInThePlanIsCaughtAtTheSecondHandOut) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Program program = testing::random_program(random, 12, true);
    RecordedStep step;
    for (std::size_t i = 0; i < program.size(); ++i)
      step.blocks.push_back(
          {program[i].key, program[i].bytes, static_cast<std::int64_t>(i) + program[i].lives_for});
    std::vector<PlannedSlot> slots = plan_allocations(step).slots();
    for (auto& each : slots)
      if (!each.escapes && random() % 2 == 0)
        each.offset = 64 * static_cast<std::int64_t>(random() % 16);
    const auto plan = std::make_shared<const AllocationPlan>(slots, 64);
    Bench bench;
    bench.resource.engine().adopt(plan);
    bench.resource.step_mark();
    bench.runner.run(program);
    bench.runner.run(program);
    ASSERT_EQ(bench.runner.problem(), "");
    if (!find_overlap(*plan).empty()) {
      ASSERT_GT(bench.statistics().refused, 0);
    }
  }
}

TEST(Replay, AnArenaThatDoesNotFitLeavesTheProgramUnplanned) {
  TestMemory memory(64, 12000);
  LiveBlocks live;
  PlannedResource resource(memory, inline_planning());
  ProgramRunner runner(resource, live);
  resource.step_mark();
  const Program program = {{1, 6000, 1}, {2, 2000, 3}, {3, 6000, 1}, {4, 100, 2}};
  void* ballast = resource.allocate(3000, device::Queue::kCompute);
  for (int i = 0; i < 40; ++i) runner.run(program);
  EXPECT_EQ(runner.problem(), "");
  resource.deallocate(ballast, 3000, device::Queue::kCompute);
  for (int i = 0; i < 40; ++i) runner.run(program);
  runner.free_all();
  EXPECT_EQ(runner.problem(), "");
}

TEST(Replay, AThreadOfAKnownRoleReplaysFromItsFirstStep) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  const std::int64_t missed = bench.statistics().missed;
  std::thread([&] {
    LiveBlocks live;
    ProgramRunner runner(bench.resource, live);
    bench.resource.step_mark();
    runner.run(kTraining);
    runner.free_all();
    EXPECT_EQ(runner.problem(), "");
  }).join();
  EXPECT_EQ(bench.statistics().missed, missed);
}

TEST(Replay, AThreadThatMarksNoStepIsNeverAnswered) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  std::thread([&] {
    EXPECT_EQ(bench.resource.engine().try_allocate(kTraining[0].bytes, kTraining[0].key), nullptr);
  }).join();
}

TEST(Replay, ALaneIsLeftToTheNextThreadOfItsRole) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  std::set<void*> seen;
  for (int i = 0; i < 5; ++i) {
    std::thread([&] {
      bench.resource.step_mark();
      void* pointer = bench.resource.allocate_for(kTraining[0].bytes, kTraining[0].key,
                                                  device::Queue::kCompute);
      seen.insert(pointer);
      bench.resource.deallocate(pointer, kTraining[0].bytes, device::Queue::kCompute);
      bench.resource.step_mark();
    }).join();
  }
  EXPECT_EQ(seen.size(), 1U);
}

// Freed by its destructor, which runs after the thread has given its lanes back.
struct LastWords {
  PlannedResource* resource = nullptr;
  void* block = nullptr;
  void* later = nullptr;
  ~LastWords() {
    if (resource == nullptr) return;
    resource->deallocate(block, kTraining[0].bytes, device::Queue::kCompute);
    resource->step_mark();
    later = resource->allocate_for(kTraining[0].bytes, kTraining[0].key, device::Queue::kCompute);
    EXPECT_FALSE(resource->engine().owns(later));
    resource->deallocate(later, kTraining[0].bytes, device::Queue::kCompute);
  }
};
thread_local LastWords t_last_words;

TEST(Replay, AThreadMayAllocateAndFreeWhileItEnds) {
  Bench bench;
  bench.steps_until_planned(kTraining);
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      t_last_words.resource = &bench.resource;
      bench.resource.step_mark();
      t_last_words.block = bench.resource.allocate_for(kTraining[0].bytes, kTraining[0].key,
                                                       device::Queue::kCompute);
      EXPECT_TRUE(bench.resource.engine().owns(t_last_words.block));
    }).join();
  }
}

TEST(Replay, TwoEnginesOfOneThreadKeepApart) {
  Bench one;
  Bench other;
  one.steps_until_planned(kTraining);
  other.steps_until_planned(kEvaluation);
  const std::int64_t missed = one.statistics().missed + other.statistics().missed;
  for (int i = 0; i < 20; ++i) {
    one.runner.run(kTraining);
    other.runner.run(kEvaluation);
  }
  EXPECT_EQ(one.statistics().missed + other.statistics().missed, missed);
  EXPECT_EQ(one.runner.problem() + other.runner.problem(), "");
}

TEST(Replay, AStepIsCountedOnceHoweverManyQueuesThereAre) {
  Bench bench;
  for (int i = 0; i < 10; ++i) bench.runner.run(kTraining);
  EXPECT_EQ(bench.statistics().steps, 11);  // and the mark before the first
}

TEST(Replay, BadOptionsAreRefused) {
  TestMemory memory;
  EXPECT_THROW(ReplayEngine(memory, {.detach_after = 0}), InvalidArgument);
  EXPECT_THROW(ReplayEngine(memory, {.growth_percent = 101}), InvalidArgument);
  ReplayEngine engine(memory);
  EXPECT_THROW(engine.adopt(std::make_shared<const AllocationPlan>(std::vector<PlannedSlot>{}, 16)),
               InvalidArgument);
}

TEST(Replay, AllMemoryGoesBackToTheUpstream) {
  TestMemory memory;
  {
    PlannedResource resource(memory, inline_planning());
    LiveBlocks live;
    ProgramRunner runner(resource, live);
    resource.step_mark();
    for (int i = 0; i < 8; ++i) runner.run(kTraining);
    for (int i = 0; i < 8; ++i) runner.run(kEvaluation);
    runner.free_all();
    EXPECT_EQ(resource.stats().live_bytes, 0);
  }
  EXPECT_EQ(memory.stats().live_bytes, 0);
}

}  // namespace
}  // namespace plimsoll::exec
