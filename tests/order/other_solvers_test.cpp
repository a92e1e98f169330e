// SPDX-License-Identifier: Apache-2.0
// SERENITY and the integer program, which the search is compared with.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"
#include "plimsoll/order/fusion.h"

#include "../graph/random_graph.h"
#include "brute_force.h"

namespace plimsoll::order {
namespace {

graph::Graph random_graph(std::uint32_t seed, int ops) {
  return graph::testing::random_graph(seed, {.ops = ops, .max_size = 40});
}

graph::Graph read(const std::string& name) {
  return graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/" + name + ".txt");
}

Options by(Algorithm algorithm) {
  Options options;
  options.algorithm = algorithm;
  options.time_limit_seconds = -1;
  return options;
}

TEST(Serenity, AgreesWithBruteForce) {
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    const graph::Graph graph = random_graph(seed, 9);
    const OrderResult result = solve(graph, by(Algorithm::kSerenity));
    ASSERT_EQ(result.peak_bytes, testing::BruteForce(graph).least_peak()) << "seed " << seed;
    ASSERT_TRUE(result.proved()) << "seed " << seed;
    ASSERT_TRUE(verify(graph, make_certificate(graph, result)).valid()) << "seed " << seed;
  }
}

// More than 64 operators, so that sets take several words, some of them full or empty in all.
TEST(Serenity, AgreesWithTheSearchOnGraphsOfSeveralWords) {
  int proved = 0;
  for (std::uint32_t seed = 0; seed < 14; ++seed) {
    const graph::Graph graph = random_graph(seed, 70);
    Options options = by(Algorithm::kSerenity);
    options.table_bytes = 16 << 20;
    const OrderResult result = solve(graph, options);
    const OrderResult searched = solve(graph, {});
    ASSERT_GE(result.peak_bytes, searched.lower_bound_bytes) << "seed " << seed;
    ASSERT_LE(result.lower_bound_bytes, searched.peak_bytes) << "seed " << seed;
    if (!result.proved() || !searched.proved()) continue;
    ASSERT_EQ(result.peak_bytes, searched.peak_bytes) << "seed " << seed;
    ++proved;
  }
  EXPECT_GE(proved, 3);
}

TEST(Serenity, MovesItsBudgetAndItsStepLimitUntilItFindsTheOptimum) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const graph::Graph graph = random_graph(seed, 12);
    Options narrow = by(Algorithm::kSerenity);
    narrow.serenity_states = 1;
    const OrderResult result = solve(graph, narrow);
    ASSERT_TRUE(result.proved()) << "seed " << seed;
    ASSERT_EQ(result.peak_bytes, solve(graph, by(Algorithm::kSerenity)).peak_bytes);
  }
}

TEST(Serenity, ProvesANetWhoseCutNodesDivideIt) {
  Options options = by(Algorithm::kSerenity);
  options.serenity_states = 2;
  const OrderResult result = solve(read("inference/densenet121"), options);
  EXPECT_EQ(result.peak_bytes, 8232 * 1024);
  EXPECT_TRUE(result.proved());
}

TEST(Ilp, AgreesWithTheSearchOnRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const graph::Graph graph = random_graph(seed, 10);
    Options options = by(Algorithm::kIlp);
    if (seed % 2 == 0) options.fusion = {false, false, false, false, false, false};
    const OrderResult result = solve(graph, options);
    ASSERT_EQ(result.peak_bytes, solve(graph, {}).peak_bytes) << "seed " << seed;
    ASSERT_TRUE(result.proved()) << "seed " << seed;
    ASSERT_LE(result.ilp_variables_pruned, result.ilp_variables);
  }
}

// Every data graph that fusion brings to 40 operators or fewer, found anew each time.
TEST(Ilp, AgreesWithTheSearchOnEveryDataGraphOfFortyFusedOperatorsOrFewer) {
  std::vector<std::string> names;
  for (const char* folder : {"inference", "training"})
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(PLIMSOLL_TEST_DATA "/graphs/") + folder))
      if (entry.path().extension() == ".txt")
        names.push_back(std::string(folder) + "/" + entry.path().stem().string());
  std::sort(names.begin(), names.end());
  int taken = 0;
  for (const std::string& name : names) {
    const graph::Graph graph = read(name);
    if (fuse(make_problem(graph), {}).problem.op_count() > Options().ilp_ops) continue;
    ++taken;
    const OrderResult result = solve(graph, by(Algorithm::kIlp));
    EXPECT_EQ(result.peak_bytes, solve(graph, {}).peak_bytes) << name;
    EXPECT_TRUE(result.proved()) << name;
    EXPECT_LE(result.ilp_variables_pruned, result.ilp_variables) << name;
    EXPECT_GT(result.ilp_variables, 0) << name;
  }
  EXPECT_GE(taken, 13);
}

TEST(Ilp, SolvesForFewerVariablesThanThePlainFormulationHas) {
  const OrderResult result = solve(read("training/x-resnet18-1"), by(Algorithm::kIlp));
  EXPECT_LT(result.ilp_variables_pruned * 2, result.ilp_variables);
}

TEST(Ilp, RefusesAGraphThatIsTooLargeAfterFusion) {
  EXPECT_THROW(solve(read("training/t-bert"), by(Algorithm::kIlp)), InvalidArgument);
}

}  // namespace
}  // namespace plimsoll::order
