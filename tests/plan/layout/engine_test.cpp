// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_validate.h"

#include "random_problem.h"

namespace plimsoll::plan {
namespace {

using testing::BruteForce;
using testing::random_problem;
using testing::RandomShape;

// Every layout any test sees passes both validators, capacities aside where it is allowed to miss.
void expect_valid(const LayoutProblem& problem, const LayoutResult& result) {
  LayoutProblem open = problem;
  if (result.status == LayoutStatus::kUnknown || result.status == LayoutStatus::kInfeasible) {
    for (LayoutArena& arena : open.arenas) arena.capacity_bytes = kUnlimitedBytes;
  }
  const auto simple = validate_layout(open, result.offsets_bytes);
  const auto sweep = validate_layout_sweep(open, result.offsets_bytes);
  EXPECT_FALSE(simple.has_value()) << simple->message;
  EXPECT_FALSE(sweep.has_value()) << sweep->message;
}

LayoutBuffer buffer(std::int64_t begin, std::int64_t end, std::int64_t size) {
  LayoutBuffer b;
  b.lifetime = {begin, end};
  b.size_bytes = size;
  return b;
}

TEST(Layout, NothingNeedsNothing) {
  const LayoutResult result = solve_layout({});
  EXPECT_EQ(result.status, LayoutStatus::kOptimal);
  EXPECT_EQ(result.arena_bytes(), 0);
  EXPECT_THAT(result.offsets_bytes, ::testing::IsEmpty());
}

TEST(Layout, BuffersThatNeverMeetShareAnAddress) {
  LayoutProblem problem;
  problem.buffers = {buffer(0, 2, 8), buffer(2, 4, 8), buffer(4, 9, 5)};
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.arena_bytes(), 8);
  EXPECT_THAT(result.offsets_bytes, ::testing::Each(0));
}

TEST(Layout, EmptyBuffersOccupyNothing) {
  LayoutProblem problem;
  problem.buffers = {buffer(0, 5, 0), buffer(3, 3, 100), buffer(0, 5, 7)};
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.arena_bytes(), 7);
  expect_valid(problem, result);
}

TEST(Layout, ABigBlockReturnsBetweenSmallOnesThatStay) {
  // 1.0, then 40 x 0.016 live across, then 1.0 again: a caching allocator splits the first block.
  LayoutProblem problem;
  problem.buffers.push_back(buffer(0, 2, 1000));
  for (int i = 0; i < 40; ++i) problem.buffers.push_back(buffer(1, 100, 16));
  problem.buffers.push_back(buffer(3, 100, 1000));
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.arena_bytes(), layout_load_bytes(problem, 0));
  EXPECT_EQ(result.arena_bytes(), 1640);
  expect_valid(problem, result);
}

struct ComparisonCase {
  const char* name;
  RandomShape shape;
  int count;
};

class LayoutComparison : public ::testing::TestWithParam<ComparisonCase> {};

TEST_P(LayoutComparison, ExactSearchAgreesWithBruteForce) {
  const auto& [name, shape, count] = GetParam();
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(::testing::Message() << name << " seed " << seed);
    const LayoutProblem problem = random_problem(static_cast<std::uint64_t>(seed), shape);
    const std::int64_t least = BruteForce(problem).least_height();
    const LayoutResult result = solve_layout(problem);
    if (least < 0) {
      EXPECT_EQ(result.status, LayoutStatus::kInfeasible);
      continue;
    }
    ASSERT_EQ(result.status, LayoutStatus::kOptimal);
    ASSERT_EQ(result.arena_bytes(), least);
    ASSERT_EQ(result.lower_bound_bytes(), least);
    ASSERT_GE(result.lower_bound_bytes(), result.load_bytes());
    expect_valid(problem, result);
    // One byte less is proved impossible.
    LayoutProblem tight = problem;
    tight.arenas[0].capacity_bytes = least - 1;
    ASSERT_EQ(solve_layout(tight).status, LayoutStatus::kInfeasible);
    tight.arenas[0].capacity_bytes = least;
    const LayoutResult fitted = solve_layout(tight);
    ASSERT_TRUE(fitted.status == LayoutStatus::kOptimal ||
                fitted.status == LayoutStatus::kFeasible);
    expect_valid(tight, fitted);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LayoutComparison,
    ::testing::Values(ComparisonCase{"plain", {}, 4000},
                      ComparisonCase{"dense", {.most_time = 4}, 1000},
                      ComparisonCase{"sparse", {.most_time = 14, .most_size = 20}, 1000},
                      ComparisonCase{"aligned", {.with_alignment = true}, 1000},
                      ComparisonCase{"gaps", {.with_gaps = true}, 1000},
                      ComparisonCase{"fixed", {.most_buffers = 6, .with_fixed = true}, 1000},
                      ComparisonCase{"reserved", {.most_buffers = 6, .with_reserved = true}, 500},
                      ComparisonCase{"everything",
                                     {.most_buffers = 6,
                                      .with_alignment = true,
                                      .with_gaps = true,
                                      .with_fixed = true,
                                      .with_reserved = true},
                                     500}),
    [](const auto& info) { return std::string(info.param.name); });

// The least height where buffers have windows: all offsets.
bool fits_anywhere(const LayoutProblem& problem, std::int64_t height, std::vector<std::int64_t>& at,
                   std::size_t next) {
  if (next == problem.buffers.size()) return !validate_layout(problem, at).has_value();
  for (at[next] = 0; at[next] + problem.buffers[next].size_bytes <= height; ++at[next]) {
    if (fits_anywhere(problem, height, at, next + 1)) return true;
  }
  return false;
}

TEST(Layout, WindowsAreNeverOverbookedNorProofsClaimedTooMuch) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const LayoutProblem problem =
        random_problem(seed, {.most_buffers = 4, .most_size = 4, .with_windows = true});
    const LayoutResult result = solve_layout(problem);
    expect_valid(problem, result);
    std::vector<std::int64_t> at(problem.buffers.size());
    EXPECT_FALSE(fits_anywhere(problem, result.lower_bound_bytes() - 1, at, 0));
    EXPECT_EQ(result.status == LayoutStatus::kOptimal,
              result.lower_bound_bytes() == result.arena_bytes());
  }
}

TEST(Layout, ALargerCapacityIsNeverWorse) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    LayoutProblem problem = random_problem(seed, {.most_buffers = 12, .most_size = 9});
    bool has_fitted = false;
    const std::int64_t load = layout_load_bytes(problem, 0);
    for (std::int64_t capacity = load - 2; capacity < load + 6; ++capacity) {
      problem.arenas[0].capacity_bytes = std::max<std::int64_t>(0, capacity);
      const LayoutStatus status = solve_layout(problem).status;
      const bool fits = status == LayoutStatus::kOptimal || status == LayoutStatus::kFeasible;
      EXPECT_TRUE(fits || !has_fitted) << "seed " << seed << " capacity " << capacity;
      has_fitted |= fits;
    }
    EXPECT_TRUE(has_fitted) << "seed " << seed;
  }
}

TEST(Layout, ShiftingPermutingAndScalingChangeNothing) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const LayoutProblem problem = random_problem(seed, {.most_buffers = 16, .most_time = 12});
    const LayoutResult plain = solve_layout(problem);
    LayoutProblem changed = problem;
    for (LayoutBuffer& b : changed.buffers)
      b.lifetime = {b.lifetime.begin * 7 - 50, b.lifetime.end * 7 - 50};
    EXPECT_EQ(solve_layout(changed).offsets_bytes, plain.offsets_bytes) << "shifted";
    changed = problem;
    for (LayoutBuffer& b : changed.buffers) b.size_bytes *= 4096;
    const LayoutResult scaled = solve_layout(changed);
    for (std::size_t i = 0; i < plain.offsets_bytes.size(); ++i)
      EXPECT_EQ(scaled.offsets_bytes[i], plain.offsets_bytes[i] * 4096) << "scaled";
    changed = problem;
    std::mt19937_64 random(seed);
    std::shuffle(changed.buffers.begin(), changed.buffers.end(), random);
    const LayoutResult permuted = solve_layout(changed);
    EXPECT_EQ(permuted.arena_bytes(), plain.arena_bytes()) << "permuted";
    expect_valid(changed, permuted);
  }
}

TEST(Layout, TheSameInputGivesTheSameOffsets) {
  const LayoutProblem problem = random_problem(5, {.most_buffers = 60, .most_time = 30});
  EXPECT_EQ(solve_layout(problem).offsets_bytes, solve_layout(problem).offsets_bytes);
}

TEST(Layout, ArenasAreLaidOutApart) {
  LayoutProblem problem;
  problem.arenas = {{"device", 8}, {"host", kUnlimitedBytes}};
  problem.buffers = {buffer(0, 4, 5), buffer(0, 4, 3), buffer(0, 4, 11)};
  problem.buffers[2].arena = 1;
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.arenas[0].arena_bytes, 8);
  EXPECT_EQ(result.arenas[1].arena_bytes, 11);
  EXPECT_EQ(result.offsets_bytes[2], 0);
  EXPECT_EQ(result.status, LayoutStatus::kOptimal);
}

TEST(Layout, ABufferThatIsAwayOccupiesNothing) {
  LayoutProblem problem;
  problem.buffers = {buffer(0, 9, 10), buffer(3, 6, 10)};
  EXPECT_EQ(solve_layout(problem).arena_bytes(), 20);
  problem.buffers[0].gaps = {{{3, 6}, {}}};
  EXPECT_EQ(solve_layout(problem).arena_bytes(), 10);
  problem.buffers[0].gaps = {{{3, 6}, {2, 4}}};
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.load_bytes(), 12);
  EXPECT_GE(result.arena_bytes(), 12);
  expect_valid(problem, result);
}

TEST(Layout, ContradictingFixedOffsetsAreInfeasible) {
  LayoutProblem problem;
  problem.buffers = {buffer(0, 4, 5), buffer(0, 4, 3)};
  problem.buffers[0].fixed_offset_bytes = 0;
  problem.buffers[1].fixed_offset_bytes = 4;
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.status, LayoutStatus::kInfeasible);
  EXPECT_TRUE(result.offsets_bytes.empty());
}

TEST(Layout, AStopIsNeverAProof) {
  LayoutProblem problem = random_problem(3, {.most_buffers = 7});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    problem = random_problem(seed, {.most_buffers = 40, .most_time = 20, .most_size = 50});
    problem.arenas[0].capacity_bytes = layout_load_bytes(problem, 0);
    LayoutOptions options;
    options.should_stop = [] { return true; };
    const LayoutResult result = solve_layout(problem, options);
    EXPECT_NE(result.status, LayoutStatus::kInfeasible);
    EXPECT_EQ(result.status == LayoutStatus::kUnknown, result.arena_bytes() > result.load_bytes());
    expect_valid(problem, result);
  }
}

TEST(Layout, AStopEndsTheSearchSoonHoweverShortItsRunsAre) {
  for (const int after : {0, 1, 5}) {
    const LayoutProblem problem = testing::perfect_problem(3, 600, 300, 100'000);
    int asked = 0;
    LayoutOptions options;
    options.should_stop = [&] { return asked++ >= after; };
    const LayoutResult result = solve_layout(problem, options);
    EXPECT_TRUE(result.was_stopped);
    EXPECT_LE(result.nodes, 256 * (after + 1));
    expect_valid(problem, result);
  }
}

TEST(Layout, BadProblemsAreNamed) {
  const auto message = [](LayoutProblem problem) -> std::string {
    try {
      solve_layout(problem);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  LayoutProblem problem;
  problem.names = {"weights"};
  problem.buffers = {buffer(0, 4, -5)};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("buffer 'weights': size -5"));
  problem.buffers = {buffer(4, 0, 5)};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("[4, 0)"));
  problem.buffers = {buffer(0, 4, 5)};
  problem.buffers[0].alignment_bytes = 0;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("alignment 0"));
  problem.buffers[0].alignment_bytes = 4;
  problem.buffers[0].fixed_offset_bytes = 6;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("multiple of the alignment 4"));
  problem.buffers[0] = buffer(0, 4, 5);
  problem.buffers[0].arena = 1;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("arena 1"));
  problem.buffers[0] = buffer(0, 4, 5);
  problem.buffers[0].gaps = {{{1, 5}, {}}};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("gap [1, 5)"));
  problem.buffers[0].gaps = {{{1, 2}, {3, 6}}};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("[3, 6)"));
  problem.buffers = {buffer(0, 4, kUnlimitedBytes - 1)};
  problem.buffers.push_back(problem.buffers[0]);
  problem.names.clear();
  EXPECT_THAT(message(problem), ::testing::HasSubstr("64 bits"));
}

}  // namespace
}  // namespace plimsoll::plan
