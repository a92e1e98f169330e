// SPDX-License-Identifier: Apache-2.0
// Whenever and however a search ends, there is a topological order, its peak and a bound.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/order/from_graph.h"

#include "../graph/random_graph.h"

namespace plimsoll::order {
namespace {

constexpr Algorithm kAll[] = {Algorithm::kSearch, Algorithm::kSerenity, Algorithm::kIlp,
                              Algorithm::kGreedy, Algorithm::kProgram};

graph::Graph read(const std::string& name) {
  return graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/" + name + ".txt");
}

void expect_sound(const Problem& problem, const Result& result, std::int64_t optimum,
                  const std::string& when) {
  ASSERT_TRUE(is_topological(problem, result.order)) << when;
  ASSERT_EQ(profile(problem, result.order).peak, result.peak_bytes) << when;
  ASSERT_LE(result.peak_bytes, result.program_peak_bytes) << when;
  ASSERT_LE(result.lower_bound_bytes, optimum) << when;
  ASSERT_EQ(result.proved, result.peak_bytes == result.lower_bound_bytes) << when;
}

// How often a whole run asks whether to stop.
std::int64_t questions(const Problem& problem, Options options) {
  std::int64_t count = 0;
  options.stop = [&count] { return ++count < 0; };
  solve(problem, options);
  return count;
}

// Stops at the 0th, 1st, 2nd, ... question, at all of them where there are few.
void stop_everywhere(const Problem& problem, Options options, std::int64_t optimum,
                     std::int64_t most, const std::string& name) {
  const std::int64_t count = questions(problem, options);
  const std::int64_t stride = std::max<std::int64_t>(1, count / most);
  for (std::int64_t at = 0; at < count; at += at < 20 ? 1 : stride) {
    std::int64_t left = at;
    options.stop = [&left] { return --left < 0; };
    const Result result = solve(problem, options);
    ASSERT_TRUE(result.stopped_early) << name << ", question " << at;
    expect_sound(problem, result, optimum, name + ", question " + std::to_string(at));
  }
}

TEST(Stopping, AtAnyQuestionOfASearchOfARealGraphLeavesASoundResult) {
  for (const std::string name : {"inference/randwire3-wsum-32", "inference/nasnet-cifar",
                                 "training/t-resnet50", "training/x-densenet121-1"}) {
    const Problem problem = make_problem(read(name));
    Options options;
    options.time_limit_seconds = -1;
    const std::int64_t optimum = solve(problem, options).peak_bytes;
    stop_everywhere(problem, options, optimum, 60, name);
  }
}

TEST(Stopping, AtAnyQuestionOfAnyAlgorithmLeavesASoundResult) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    for (const Algorithm algorithm : {Algorithm::kSearch, Algorithm::kSerenity, Algorithm::kIlp}) {
      const bool is_ilp = algorithm == Algorithm::kIlp;
      const Problem problem = make_problem(
          graph::testing::random_graph(seed, {.ops = is_ilp ? 8 : 16, .max_size = 40}));
      const std::int64_t optimum = solve(problem, {}).peak_bytes;
      Options options;
      options.algorithm = algorithm;
      options.time_limit_seconds = -1;
      options.serenity_states = 4;
      stop_everywhere(problem, options, optimum, is_ilp ? 5 : 30, "seed " + std::to_string(seed));
    }
  }
}

TEST(Stopping, AtTheWorkLimitLeavesASoundResultThatRepeats) {
  const Problem problem = make_problem(read("inference/randwire1-wsum-64"));
  const std::int64_t optimum = solve(problem, {}).peak_bytes;
  for (const std::int64_t work : {0, 1000, 100'000, 1'000'000}) {
    Options options;
    options.time_limit_seconds = -1;
    options.work_limit = work;
    const Result first = solve(problem, options), second = solve(problem, options);
    expect_sound(problem, first, optimum, "work " + std::to_string(work));
    EXPECT_EQ(first.order, second.order);
    EXPECT_EQ(first.states, second.states);
  }
}

TEST(Stopping, ATimeLimitOfZeroGivesProgramOrderAndABoundByEveryAlgorithm) {
  for (const std::string name : {"training/t-unet", "training/t-resnet1001",
                                 "inference/randwire1-wsum-64", "training/x-vit_b_16-1"}) {
    const graph::Graph graph = read(name);
    for (const Algorithm algorithm : kAll) {
      Options options;
      options.algorithm = algorithm;
      options.time_limit_seconds = 0;
      const OrderResult result = solve(graph, options);
      EXPECT_TRUE(std::ranges::equal(result.order, graph.program_order())) << name;
      EXPECT_EQ(result.peak_bytes, graph::peak_bytes(graph, graph.program_order())) << name;
      EXPECT_TRUE(result.stopped_early) << name;
      EXPECT_GT(result.lower_bound_bytes, 0) << name;
      EXPECT_LE(result.lower_bound_bytes, result.peak_bytes) << name;
    }
  }
}

TEST(Stopping, SerenityStopsAtItsLimitOfBytesAndSaysSo) {
  Options options;
  options.algorithm = Algorithm::kSerenity;
  options.time_limit_seconds = -1;
  options.table_bytes = 1 << 20;
  const Problem problem = make_problem(read("inference/pnas-cifar"));
  const Result result = solve(problem, options);
  expect_sound(problem, result, result.peak_bytes, "serenity within 1 MiB");
  EXPECT_NE(result.note.find("ran out of time or memory"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::order
