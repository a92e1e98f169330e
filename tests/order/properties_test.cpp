// SPDX-License-Identifier: Apache-2.0
// What holds for every graph and every solver.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/order/from_graph.h"

#include "../graph/random_graph.h"

namespace plimsoll::order {
namespace {

graph::Graph random_graph(std::uint32_t seed, int ops) {
  graph::testing::RandomGraphOptions options;
  options.ops = ops;
  options.max_size = 40;
  return graph::testing::random_graph(seed, options);
}

struct Names {
  std::vector<std::int32_t> ops, storages;
};

Names own_names(const Problem& problem) {
  Names names;
  names.ops.resize(problem.op_count());
  names.storages.resize(problem.storage_count());
  std::iota(names.ops.begin(), names.ops.end(), 0);
  std::iota(names.storages.begin(), names.storages.end(), 0);
  return names;
}

Names shuffled_names(const Problem& problem, std::uint32_t seed) {
  Names names = own_names(problem);
  std::mt19937 random(seed);
  std::shuffle(names.ops.begin(), names.ops.end(), random);
  std::shuffle(names.storages.begin(), names.storages.end(), random);
  return names;
}

// The problem with other ids: operator o becomes names.ops[o], storages likewise.
ProblemInput renamed(const Problem& problem, const Names& names, std::int64_t scale) {
  const std::vector<std::int32_t>& name = names.ops;
  ProblemInput input;
  input.ops = problem.op_count();
  input.base_bytes = problem.base_bytes * scale;
  input.extra.resize(problem.extra.size());
  input.storages.resize(problem.bytes.size());
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    const std::int32_t w = names.storages[v];
    input.storages[w] = {problem.bytes[v] * scale, problem.kept[v] != 0};
    for (const std::int32_t b : problem.births[v]) input.births.emplace_back(w, name[b]);
    for (const std::int32_t r : problem.readers[v]) input.reads.emplace_back(w, name[r]);
  }
  for (std::int32_t o = 0; o < problem.op_count(); ++o) {
    input.extra[name[o]] = problem.extra[o] * scale;
    for (const std::int32_t v : problem.overwrites[o])
      input.overwrites.emplace_back(name[o], names.storages[v]);
    for (const std::int32_t s : problem.after[o]) input.precedence.emplace_back(name[o], name[s]);
  }
  return input;
}

TEST(Properties, OtherIdsKeepThePeakAndScaledSizesScaleIt) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const Problem problem = make_problem(random_graph(seed, 24));
    const Result plain = solve(problem, {});
    const Result scaled = solve(build_problem(renamed(problem, own_names(problem), 1000)), {});
    const Result shuffled =
        solve(build_problem(renamed(problem, shuffled_names(problem, seed), 1)), {});
    ASSERT_TRUE(plain.proved && scaled.proved && shuffled.proved) << "seed " << seed;
    ASSERT_EQ(plain.peak_bytes, shuffled.peak_bytes) << "seed " << seed;
    ASSERT_EQ(plain.peak_bytes * 1000, scaled.peak_bytes) << "seed " << seed;
  }
}

TEST(Properties, OtherIdsKeepTheProvedPeakOfRealGraphs) {
  for (const std::string name : {"inference/nasnet-cifar", "inference/randwire2-wsum-32",
                                 "training/t-resnet50", "training/x-vit_b_16-1"}) {
    const Problem problem =
        make_problem(graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/" + name + ".txt"));
    const Result plain = solve(problem, {});
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      const Result shuffled =
          solve(build_problem(renamed(problem, shuffled_names(problem, seed), 1)), {});
      EXPECT_TRUE(shuffled.proved) << name << ", seed " << seed;
      EXPECT_EQ(plain.peak_bytes, shuffled.peak_bytes) << name << ", seed " << seed;
    }
  }
}

TEST(Properties, TheBoundIsAtMostThePeakAndThePeakAtMostTheSum) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const graph::Graph graph = random_graph(seed, 30);
    std::int64_t sum = 0, most_workspace = 0;
    for (std::size_t s = 0; s < graph.storage_count(); ++s)
      sum += graph.size_bytes(graph::StorageId(s));
    for (std::size_t o = 0; o < graph.op_count(); ++o)
      most_workspace = std::max(most_workspace, graph.workspace_bytes(graph::OpId(o)));
    for (const Algorithm algorithm :
         {Algorithm::kSearch, Algorithm::kSerenity, Algorithm::kGreedy, Algorithm::kProgram}) {
      Options options;
      options.algorithm = algorithm;
      options.time_limit_seconds = -1;
      options.table_bytes = 4 << 20;
      const OrderResult result = solve(graph, options);
      ASSERT_LE(result.lower_bound_bytes, result.peak_bytes) << "seed " << seed;
      ASSERT_LE(result.peak_bytes, sum + most_workspace) << "seed " << seed;
      ASSERT_EQ(result.peak_bytes, graph::peak_bytes(graph, result.order)) << "seed " << seed;
    }
  }
}

TEST(Properties, TheSameProblemGivesTheSameResult) {
  const Problem problem = make_problem(
      graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/inference/randwire2-wsum-32.txt"));
  const Result first = solve(problem, {}), second = solve(problem, {});
  EXPECT_EQ(first.order, second.order);
  EXPECT_EQ(first.states, second.states);
}

TEST(Problem, RefusesWhatIsNone) {
  using ::testing::HasSubstr;
  const auto message = [](const ProblemInput& input) {
    try {
      build_problem(input);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  ProblemInput input;
  input.ops = 3;
  input.storages = {{8, false}};
  EXPECT_EQ(message(input), "accepted");
  ProblemInput cycle = input;
  cycle.precedence = {{0, 1}, {1, 2}, {2, 1}};
  EXPECT_THAT(message(cycle), HasSubstr("cycle: 2 -> 1 -> 2"));
  ProblemInput dangling = input;
  dangling.reads = {{1, 0}};
  EXPECT_THAT(message(dangling), HasSubstr("storage 1 does not exist"));
  ProblemInput negative = input;
  negative.storages[0].bytes = -1;
  EXPECT_THAT(message(negative), HasSubstr("-1 bytes"));
  ProblemInput huge = input;
  huge.storages[0].bytes = std::int64_t{1} << 62;
  huge.storages.push_back({1, false});
  EXPECT_THAT(message(huge), HasSubstr("2^62"));
  ProblemInput unread = input;
  unread.overwrites = {{0, 0}};
  EXPECT_THAT(message(unread), HasSubstr("does not read"));
}

TEST(Problem, WithoutOperatorsHasAnEmptyOrder) {
  const Result result = solve(build_problem({}), {});
  EXPECT_TRUE(result.order.empty());
  EXPECT_TRUE(result.proved);
  EXPECT_EQ(result.peak_bytes, 0);
}

}  // namespace
}  // namespace plimsoll::order
