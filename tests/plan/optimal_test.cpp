// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/validate.h"

#include "../graph/random_graph.h"
#include "optimal_gap.h"

namespace plimsoll::plan {
namespace {

using testing::equal_blocks;
using testing::GapSum;
using testing::measure_gap;
using testing::round_device;

PlannerOptions exactly() {
  PlannerOptions options;
  options.policy = Policy::kOptimal;
  return options;
}

TEST(Optimal, AutoIsWithinThreePercentOfItOnAverage) {
  const GapSum gap = measure_gap(0, 60);
  EXPECT_LE(gap.mean, 1.03);
  EXPECT_LE(gap.bound_mean, 1.03);
  EXPECT_GE(gap.proved, gap.cases * 9 / 10);
  RecordProperty("worst", gap.worst_at);
}

// With every feature of the graph: what it makes of them is validated by the planner.
TEST(Optimal, IsNeverSlowerThanAutoNorFasterThanItsBound) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    graph::testing::RandomGraphOptions shape;
    shape.ops = 4 + static_cast<int>(seed % 6);
    shape.max_size = 40;
    const graph::Graph graph = graph::testing::random_graph(seed, shape);
    Planner quick(graph, round_device(), {});
    Planner exact(graph, round_device(), exactly());
    const std::int64_t least = quick.minimum_budget_bytes();
    EXPECT_EQ(exact.minimum_budget_bytes(), least);
    const std::int64_t most = std::max(least, quick.bounds().stock_peak_bytes);
    for (int i = 0; i < 2; ++i) {
      const PlanReport best = exact.plan(least + (most - least) * i / 2);
      EXPECT_LE(best.predicted_ns, quick.plan(best.budget_bytes).predicted_ns * (1 + 1e-9))
          << "seed " << seed;
      EXPECT_GE(best.predicted_ns * (1 + 1e-6), exact.time_lower_bound_ns(best.budget_bytes))
          << "seed " << seed;
    }
  }
}

//  Four equal blocks of 100 bytes, forward 401 ns, backward 801 ns, nothing can be copied. Stock
//  holds the input, four activations and a gradient; with one block less, one activation is made
//  again: the cheapest that serves is one forward op.
TEST(Optimal, RunsOneBlockAgainWhereOneIsMissing) {
  const graph::Graph graph = equal_blocks(4, 100);
  Planner planner(graph, round_device(0), exactly());
  const PlanBounds& bounds = planner.bounds();
  const PlanReport report = planner.plan(bounds.stock_peak_bytes - 100);
  EXPECT_TRUE(report.is_proved);
  EXPECT_EQ(report.recomputed_ops, 1);
  EXPECT_DOUBLE_EQ(report.predicted_ns, bounds.stock_predicted_ns + 401);
}

TEST(Optimal, RefusesLargeGraphsByTheirSize) {
  const graph::Graph graph = equal_blocks(16, 100);
  try {
    Planner planner(graph, round_device(), exactly());
    FAIL() << "32 ops were accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("32 ops"));
  }
}

}  // namespace
}  // namespace plimsoll::plan
