// SPDX-License-Identifier: Apache-2.0
// Programs that depart from their plans in every way we know, with every block under the checker.
#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "plimsoll/exec/planned_resource.h"

#include "live_blocks.h"
#include "program_runner.h"

namespace plimsoll::exec {
namespace {

using testing::LiveBlocks;
using testing::Program;
using testing::ProgramBlock;
using testing::ProgramRunner;
using testing::TestMemory;

// Blocks that another thread frees, or that are freed much later.
class Hand {
 public:
  Hand(PlannedResource& resource, LiveBlocks& live) : resource_(resource), live_(live) {}
  void give(void* pointer, std::int64_t bytes) {
    const std::lock_guard guard(lock_);
    blocks_.push_back({pointer, bytes});
  }
  // Frees up to `most` of them; returns what the checker says.
  std::string free_some(std::size_t most) {
    std::string problem;
    for (std::size_t i = 0; i < most; ++i) {
      std::pair<void*, std::int64_t> block;
      {
        const std::lock_guard guard(lock_);
        if (blocks_.empty()) return problem;
        block = blocks_.front();
        blocks_.pop_front();
      }
      const std::string found = live_.remove(block.first);
      if (problem.empty()) problem = found;
      resource_.deallocate(block.first, block.second, device::Queue::kCompute);
    }
    return problem;
  }

 private:
  PlannedResource& resource_;
  LiveBlocks& live_;
  std::mutex lock_;
  std::deque<std::pair<void*, std::int64_t>> blocks_;
};

// One departure of each kind, at a random place.
Program perturb(Program program, std::mt19937_64& random) {
  const auto at = [&] { return static_cast<std::ptrdiff_t>(random() % program.size()); };
  const int departures = static_cast<int>(random() % 4);
  for (int i = 0; i < departures && !program.empty(); ++i) {
    switch (random() % 6) {
      case 0:
        program.insert(program.begin() + at(), {1 + random() % 7, 1 + std::int64_t(random() % 2000),
                                                1 + std::int64_t(random() % 5)});
        break;
      case 1:
        program.erase(program.begin() + at());
        break;
      case 2:
        std::swap(program[std::size_t(at())], program[std::size_t(at())]);
        break;
      case 3:
        program[std::size_t(at())].bytes = 1 + std::int64_t(random() % 3000);
        break;
      case 4:
        program[std::size_t(at())].lives_for += std::int64_t(random() % 20);
        break;
      default:
        program.resize(std::size_t(at()));
    }
  }
  return program;
}

struct Counts {
  std::int64_t replays = 0;
  ReplayStatistics statistics;
};

// Replays one random program `replays` times. Without `partner`, late frees come from this thread.
void replay_perturbed(std::uint64_t seed, int replays, bool with_partner, Counts& counts) {
  std::mt19937_64 random(seed);
  TestMemory memory;
  LiveBlocks live;
  PlannedResourceOptions options;
  options.replay.plan_in_background = with_partner;
  options.replay.resync_window = 1 + static_cast<int>(random() % 16);
  options.replay.detach_after = 1 + static_cast<int>(random() % 6);
  PlannedResource resource(memory, options);
  std::vector<Program> programs;
  for (int i = 0; i < 1 + static_cast<int>(random() % 3); ++i)
    programs.push_back(testing::random_program(random, 14, random() % 3 != 0));
  Hand hand(resource, live);
  std::atomic<bool> is_done{false};
  std::string partners_problem;
  std::thread partner;
  if (with_partner)
    partner = std::thread([&] {
      while (!is_done.load()) {
        const std::string problem = hand.free_some(8);
        if (partners_problem.empty()) partners_problem = problem;
        std::this_thread::yield();
      }
    });
  {
    ProgramRunner runner(resource, live);
    resource.step_mark();
    for (int i = 0; i < replays; ++i) {
      const Program& base = programs[i % 7 == 6 ? programs.size() - 1 : i / 7 % programs.size()];
      const bool is_plain = random() % 4 != 0;
      for (const ProgramBlock& block : is_plain ? base : perturb(base, random)) {
        runner.request(block);
        void* pointer = nullptr;
        std::int64_t bytes = 0;
        if (random() % 16 == 0 && runner.take_random(random, &pointer, &bytes))
          hand.give(pointer, bytes);
        if (!with_partner && random() % 8 == 0) {
          ASSERT_EQ(hand.free_some(random() % 3), "") << "seed " << seed;
        }
      }
      resource.step_mark();
      if (with_partner && i % 32 == 8) resource.engine().wait_for_planner();
    }
    runner.free_all();
    ASSERT_EQ(runner.problem(), "") << "seed " << seed;
  }
  is_done = true;
  if (partner.joinable()) partner.join();
  ASSERT_EQ(partners_problem, "") << "seed " << seed;
  ASSERT_EQ(hand.free_some(1U << 30), "") << "seed " << seed;
  ASSERT_EQ(live.live_bytes(), 0) << "seed " << seed;
  counts.replays += replays;
  const ReplayStatistics now = resource.engine().statistics();
  counts.statistics.planned += now.planned;
  counts.statistics.missed += now.missed;
  counts.statistics.refused += now.refused;
  counts.statistics.skipped += now.skipped;
  counts.statistics.detached += now.detached;
  counts.statistics.plans_made += now.plans_made;
}

void expect_all_paths(const Counts& counts) {
  EXPECT_GT(counts.statistics.planned, 0);
  EXPECT_GT(counts.statistics.missed, 0);
  EXPECT_GT(counts.statistics.refused, 0);
  EXPECT_GT(counts.statistics.skipped, 0);
  EXPECT_GT(counts.statistics.detached, 0);
  EXPECT_GT(counts.statistics.plans_made, 0);
  ::testing::Test::RecordProperty("planned", static_cast<int>(counts.statistics.planned));
  std::printf("%lld replays: %lld requests planned, %lld missed, %lld refused, %lld plans\n",
              static_cast<long long>(counts.replays),
              static_cast<long long>(counts.statistics.planned),
              static_cast<long long>(counts.statistics.missed),
              static_cast<long long>(counts.statistics.refused),
              static_cast<long long>(counts.statistics.plans_made));
}

// Sanitizers are slow: a twentieth, unless PLIMSOLL_ALL_REPLAYS is set.
const int kScale = [] {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return std::getenv("PLIMSOLL_ALL_REPLAYS") != nullptr ? 1 : 20;
#else
  return 1;
#endif
}();

TEST(LiveBlocks, SeeBytesHandedOutTwiceAndWrittenByOthers) {
  alignas(64) char memory[256] = {};
  LiveBlocks live;
  EXPECT_EQ(live.add(memory, 100, 64), "");
  EXPECT_NE(live.add(memory + 64, 64, 64), "");   // overlaps
  EXPECT_NE(live.add(memory + 136, 64, 64), "");  // is not aligned
  EXPECT_EQ(live.add(memory + 128, 64, 64), "");
  memory[99] ^= 1;
  EXPECT_NE(live.remove(memory), "");  // was written to
  EXPECT_EQ(live.remove(memory + 128), "");
  EXPECT_NE(live.remove(memory + 128), "");  // is not live
}

TEST(PerturbedReplay, AMillionReplaysHandOutNoByteTwice) {
  Counts counts;
  for (std::uint64_t seed = 0; seed < std::uint64_t(2000 / kScale); ++seed) {
    replay_perturbed(seed, 500, false, counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(counts.replays, 1'000'000 / kScale);
  expect_all_paths(counts);
}

TEST(PerturbedReplay, FreesFromAnotherThreadAndABackgroundPlannerHandOutNoByteTwice) {
  Counts counts;
  for (std::uint64_t seed = 10'000; seed < 10'000 + std::uint64_t(100 / kScale); ++seed) {
    replay_perturbed(seed, 1000, true, counts);
    if (HasFatalFailure()) return;
  }
  expect_all_paths(counts);
}

TEST(PerturbedReplay, LanesOfManyThreadsFreeOneAnothersBlocks) {
  TestMemory memory;
  LiveBlocks live;
  PlannedResource resource(memory);
  std::mt19937_64 seeds(7);
  const Program program = testing::random_program(seeds, 14, true);
  Hand hand(resource, live);
  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string problem;
    {
      ProgramRunner runner(resource, live);
      resource.step_mark();
      for (int i = 0; i < 2000 / kScale; ++i) {
        for (const ProgramBlock& block : random() % 4 != 0 ? program : perturb(program, random)) {
          runner.request(block);
          void* pointer = nullptr;
          std::int64_t bytes = 0;
          if (random() % 8 == 0 && runner.take_random(random, &pointer, &bytes))
            hand.give(pointer, bytes);
          if (random() % 8 == 0) problem += hand.free_some(2);
        }
        resource.step_mark();
      }
      runner.free_all();
      problem += runner.problem();
    }
    EXPECT_EQ(problem, "") << "seed " << seed;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hand.free_some(1U << 30), "");
  EXPECT_EQ(live.live_bytes(), 0);
}

}  // namespace
}  // namespace plimsoll::exec
