// SPDX-License-Identifier: Apache-2.0
// Both forms of a rewritten net are executed on small tensors and compared: bit for bit where the
// rewriting says it is exact, else within the rounding error of the longest sum.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "plimsoll/order/from_graph.h"
#include "plimsoll/rewrite/rewrite.h"

#include "darts_cell.h"
#include "executor.h"
#include "net_builder.h"

namespace plimsoll::rewrite {
namespace {

using graph::Graph;
using graph::OpId;
using graph::ValueId;
using testing::Executor;
using testing::NetBuilder;

Graph apply_all(const Graph& graph, bool* exact = nullptr) {
  std::vector<OpId> ops;
  if (exact != nullptr) *exact = true;
  for (const Candidate& c : find_candidates(graph)) {
    ops.push_back(c.op);
    if (exact != nullptr) *exact = *exact && c.exact;
  }
  EXPECT_FALSE(ops.empty());
  return apply_at(graph, ops);
}

// A random topological order: sums are added up in every order.
std::vector<OpId> shuffled(const Graph& graph, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> waiting(graph.op_count());
  std::vector<OpId> ready;
  std::vector<OpId> order;
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    waiting[i] = graph.predecessors(OpId(i)).size();
    if (waiting[i] == 0) ready.emplace_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (const OpId next : graph.successors(order.back())) {
      if (--waiting[next.index()] == 0) ready.push_back(next);
    }
  }
  return order;
}

// `tolerance` is relative to the largest element; 0 asks for equal bits.
void expect_same_results(const Graph& before, const Graph& after, float tolerance) {
  const auto expected = Executor(before).run(before.program_order());
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const auto order = shuffled(after, seed);
    const auto found = Executor(after).run(order);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].size(), expected[i].size());
      float scale = 0;
      for (const float x : expected[i]) scale = std::max(scale, std::abs(x));
      EXPECT_GT(scale, 0.0F);
      for (std::size_t k = 0; k < found[i].size(); ++k)
        ASSERT_LE(std::abs(found[i][k] - expected[i][k]), tolerance * scale)
            << "seed " << seed << ", result " << i << ", element " << k;
    }
  }
}

// n products: the error of a sum in any order is at most n units in the last place of its terms.
float tolerance_of(int products) {
  return static_cast<float>(products) * std::numeric_limits<float>::epsilon();
}

TEST(Numerics, SplitSumAgreesWithinRounding) {
  NetBuilder net(5);
  const ValueId x = net.input(3);
  const ValueId y = net.conv(net.concat({net.conv(x, 2, 3), net.relu(x), net.conv(x, 4, 1)}), 5, 3,
                             /*bias=*/true);
  net.sink({y});
  const Graph before = net.build();
  bool exact = true;
  const Graph after = apply_all(before, &exact);
  EXPECT_FALSE(exact);
  expect_same_results(before, after, tolerance_of(9 * 9 * 4));
}

TEST(Numerics, DepthwiseAndActivationsAreExact) {
  NetBuilder net(6);
  const ValueId x = net.input(3);
  const ValueId whole = net.concat({net.conv(x, 2, 1), x, net.conv(x, 3, 3)});
  // relu keeps its parts, the depthwise convolution behind it writes slices.
  net.sink({net.depthwise(net.relu(whole), 3)});
  const Graph before = net.build();
  bool exact = false;
  const Graph after = apply_all(before, &exact);
  EXPECT_TRUE(exact);
  expect_same_results(before, after, 0);
}

TEST(Numerics, DepthwiseThenPointwiseStaysInParts) {
  NetBuilder net(4);
  const ValueId x = net.input(2);
  net.sink({net.conv(net.depthwise(net.concat({net.relu(x), net.conv(x, 3, 3)}), 3), 4, 1, true)});
  const Graph before = net.build();
  const Graph after = apply_all(before);
  for (std::size_t i = 0; i < after.op_count(); ++i) EXPECT_NE(after.kind(OpId(i)), "Join");
  expect_same_results(before, after, tolerance_of(200));
}

TEST(Numerics, BackwardOfAConcatenationIsExact) {
  NetBuilder net(4);
  const ValueId x = net.input(3);
  const ValueId dy = net.input(5);
  const ValueId a = net.conv(x, 2, 3);
  const ValueId b = net.conv(x, 4, 3);
  const ValueId whole = net.concat({a, b});
  // Backward of a convolution over `whole`; its forward needs no result here.
  const ValueId dw = net.weight_gradient(whole, dy, 3);
  const std::vector<ValueId> parts = net.split(net.data_gradient(dy, 6, 3, 77), {2, 4});
  net.sink({dw, net.relu(parts[0]), net.relu(parts[1])});
  const Graph before = net.build();
  bool exact = false;
  const Graph after = apply_all(before, &exact);
  EXPECT_TRUE(exact);
  for (std::size_t i = 0; i < after.op_count(); ++i) {
    EXPECT_NE(after.kind(OpId(i)), "Concat");
    EXPECT_NE(after.kind(OpId(i)), "Split");
  }
  expect_same_results(before, after, 0);
}

TEST(Numerics, TrainingStepAgreesWithinRounding) {
  NetBuilder net(4);
  const ValueId x = net.input(3);
  const ValueId a = net.conv(x, 2, 3);
  const ValueId b = net.relu(net.conv(x, 3, 1));
  const ValueId whole = net.concat({a, b});
  const ValueId y = net.conv(whole, 4, 3, true);
  const std::int64_t seed = net.last_seed();
  // The loss is half the squared norm: the gradient is y itself.
  const ValueId dw = net.weight_gradient(whole, y, 3);
  const std::vector<ValueId> parts = net.split(net.data_gradient(y, 5, 3, seed), {2, 3});
  net.sink({y, dw, parts[0], parts[1]});
  const Graph before = net.build();
  EXPECT_EQ(find_candidates(before).size(), 2u);
  expect_same_results(before, apply_all(before), tolerance_of(1000));
}

TEST(Numerics, DartsCellAgreesInTheSolversOrder) {
  const Graph before = testing::darts_cell(4, 5);
  const Rewritten rewritten =
      rewrite_where_it_pays(before, [](const Graph& graph) { return order::solve(graph, {}); });
  ASSERT_EQ(rewritten.applied.size(), 1u);
  const auto expected = Executor(before).run(before.program_order());
  const auto found = Executor(rewritten.graph).run(rewritten.solved.order);
  float scale = 0;
  for (const float value : expected[0]) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < found[0].size(); ++i)
    ASSERT_NEAR(found[0][i], expected[0][i], scale * tolerance_of(64));
}

}  // namespace
}  // namespace plimsoll::rewrite
