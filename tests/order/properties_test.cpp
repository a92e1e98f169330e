// SPDX-License-Identifier: Apache-2.0
// What holds for every graph and every solver.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"

#include "../graph/random_graph.h"
#include "brute_force.h"

namespace plimsoll::order {
namespace {

graph::Graph random_graph(std::uint32_t seed, int ops) {
  graph::testing::RandomGraphOptions options;
  options.ops = ops;
  options.max_size = 40;
  return graph::testing::random_graph(seed, options);
}

// The problem with its operators renamed: operator o becomes name[o].
ProblemInput renamed(const Problem& problem, const std::vector<std::int32_t>& name,
                     std::int64_t scale) {
  ProblemInput input;
  input.ops = problem.op_count();
  input.extra.resize(problem.extra.size());
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    input.storages.push_back({problem.bytes[v] * scale, problem.kept[v] != 0});
    for (const std::int32_t b : problem.births[v]) input.births.emplace_back(v, name[b]);
    for (const std::int32_t r : problem.readers[v]) input.reads.emplace_back(v, name[r]);
  }
  for (std::int32_t o = 0; o < problem.op_count(); ++o) {
    input.extra[name[o]] = problem.extra[o] * scale;
    for (const std::int32_t v : problem.overwrites[o]) input.overwrites.emplace_back(name[o], v);
    for (const std::int32_t s : problem.after[o]) input.precedence.emplace_back(name[o], name[s]);
  }
  return input;
}

TEST(Properties, RenamingOperatorsKeepsThePeakAndScalingSizesScalesIt) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const Problem problem = make_problem(random_graph(seed, 24));
    std::vector<std::int32_t> name(problem.op_count());
    std::iota(name.begin(), name.end(), 0);
    const Result plain = solve(problem, {});
    const Result scaled = solve(build_problem(renamed(problem, name, 1000)), {});
    std::shuffle(name.begin(), name.end(), std::mt19937(seed));
    const Result shuffled = solve(build_problem(renamed(problem, name, 1)), {});
    ASSERT_TRUE(plain.proved && scaled.proved && shuffled.proved) << "seed " << seed;
    ASSERT_EQ(plain.peak_bytes, shuffled.peak_bytes) << "seed " << seed;
    ASSERT_EQ(plain.peak_bytes * 1000, scaled.peak_bytes) << "seed " << seed;
  }
}

TEST(Properties, TheBoundIsAtMostThePeakAndThePeakAtMostTheSum) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const graph::Graph graph = random_graph(seed, 40);
    std::int64_t sum = 0, most_workspace = 0;
    for (std::size_t s = 0; s < graph.storage_count(); ++s)
      sum += graph.size_bytes(graph::StorageId(s));
    for (std::size_t o = 0; o < graph.op_count(); ++o)
      most_workspace = std::max(most_workspace, graph.workspace_bytes(graph::OpId(o)));
    for (const Algorithm algorithm :
         {Algorithm::kSearch, Algorithm::kSerenity, Algorithm::kGreedy, Algorithm::kProgram}) {
      Options options;
      options.algorithm = algorithm;
      const OrderResult result = solve(graph, options);
      ASSERT_LE(result.lower_bound_bytes, result.peak_bytes) << "seed " << seed;
      ASSERT_LE(result.peak_bytes, sum + most_workspace) << "seed " << seed;
      ASSERT_EQ(result.peak_bytes, graph::peak_bytes(graph, result.order)) << "seed " << seed;
    }
  }
}

TEST(Properties, AnOrderIsTopologicalWheneverTheSearchIsStopped) {
  const graph::Graph graph =
      graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/inference/randwire3-wsum-32.txt");
  const Problem problem = make_problem(graph);
  for (int calls = 0; calls < 60; ++calls) {
    for (const Algorithm algorithm : {Algorithm::kSearch, Algorithm::kSerenity}) {
      int left = calls;
      Options options;
      options.algorithm = algorithm;
      options.serenity_states = 500;
      options.stop = [&left] { return --left < 0; };
      const Result result = solve(problem, options);
      ASSERT_TRUE(is_topological(problem, result.order)) << "stopped at call " << calls;
      ASSERT_EQ(profile(problem, result.order).peak, result.peak_bytes);
      ASSERT_LE(result.lower_bound_bytes, 4647552);
    }
  }
}

TEST(Properties, ATimeLimitOfZeroGivesProgramOrderAndABound) {
  const Problem problem =
      make_problem(graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/training/t-unet.txt"));
  for (const Algorithm algorithm : {Algorithm::kSearch, Algorithm::kSerenity, Algorithm::kIlp}) {
    Options options;
    options.algorithm = algorithm;
    options.time_limit_seconds = 0;
    const Result result = solve(problem, options);
    EXPECT_EQ(result.order, problem.program);
    EXPECT_TRUE(result.stopped_early);
    EXPECT_GT(result.lower_bound_bytes, 0);
  }
}

TEST(Properties, TheSameProblemGivesTheSameResult) {
  const Problem problem = make_problem(
      graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/inference/randwire2-wsum-32.txt"));
  const Result first = solve(problem, {}), second = solve(problem, {});
  EXPECT_EQ(first.order, second.order);
  EXPECT_EQ(first.states, second.states);
}

TEST(Serenity, AgreesWithBruteForce) {
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    const graph::Graph graph = random_graph(seed, 9);
    Options options;
    options.algorithm = Algorithm::kSerenity;
    const OrderResult result = solve(graph, options);
    ASSERT_EQ(result.peak_bytes, testing::BruteForce(graph).least_peak()) << "seed " << seed;
    ASSERT_TRUE(result.proved()) << "seed " << seed;
  }
}

TEST(Serenity, HalvesItsBudgetWhenAStepTimesOutAndStillFindsTheOptimum) {
  const graph::Graph graph =
      graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/inference/densenet121.txt");
  Options options;
  options.algorithm = Algorithm::kSerenity;
  options.serenity_states = 2;
  EXPECT_EQ(solve(graph, options).peak_bytes, 8232 * 1024);
}

TEST(Ilp, AgreesWithTheSearchOnRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const graph::Graph graph = random_graph(seed, 10);
    Options options;
    options.algorithm = Algorithm::kIlp;
    if (seed % 2 == 0) options.fusion = {false, false, false, false, false, false};
    const OrderResult result = solve(graph, options);
    ASSERT_EQ(result.peak_bytes, solve(graph, {}).peak_bytes) << "seed " << seed;
    ASSERT_TRUE(result.proved()) << "seed " << seed;
    ASSERT_LE(result.ilp_variables_pruned, result.ilp_variables);
  }
}

TEST(Ilp, AgreesWithTheSearchOnEveryDataGraphItTakes) {
  for (const char* name : {"x-alexnet-1", "x-alexnet-32", "x-vgg11-1", "x-vgg11-32", "x-resnet18-1",
                           "x-resnet18-32", "x-resnet50-1", "x-resnet50-32", "x-squeezenet1_0-1",
                           "x-squeezenet1_0-32", "x-mobilenet_v2-1", "x-mobilenet_v2-32"}) {
    const graph::Graph graph =
        graph::read_text_file(std::string(PLIMSOLL_TEST_DATA "/graphs/training/") + name + ".txt");
    Options options;
    options.algorithm = Algorithm::kIlp;
    const OrderResult result = solve(graph, options);
    EXPECT_EQ(result.peak_bytes, solve(graph, {}).peak_bytes) << name;
    EXPECT_TRUE(result.proved()) << name;
  }
}

TEST(Ilp, RefusesAGraphThatIsTooLargeAfterFusion) {
  const graph::Graph graph =
      graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/training/t-bert.txt");
  Options options;
  options.algorithm = Algorithm::kIlp;
  EXPECT_THROW(solve(graph, options), InvalidArgument);
}

TEST(Certificates, OfRandomGraphsAreAccepted) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const graph::Graph graph = random_graph(seed, 14);
    const OrderResult result = solve(graph, {});
    const Verdict verdict = verify(graph, make_certificate(graph, result));
    ASSERT_TRUE(verdict.valid()) << "seed " << seed << ": " << verdict.reason;
  }
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
