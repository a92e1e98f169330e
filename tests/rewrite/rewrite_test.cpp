// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/rewrite/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/onnx.h"
#include "plimsoll/order/from_graph.h"

#include "net_builder.h"

namespace plimsoll::rewrite {
namespace {

using graph::Graph;
using graph::OpId;
using graph::ValueId;
using testing::NetBuilder;

order::OrderResult solve(const Graph& graph) { return order::solve(graph, {}); }

TEST(Rewrite, LeavesAConcatenationThatIsReadWhole) {
  NetBuilder net(4);
  const ValueId x = net.input(2);
  const ValueId whole = net.concat({net.relu(x), x});
  net.sink({net.conv(whole, 2, 1), net.add(whole, whole)});
  EXPECT_TRUE(find_candidates(net.build()).empty());
}

TEST(Rewrite, LeavesAConcatenationOfOtherDimensions) {
  graph::GraphBuilder builder;
  const auto map = [&](std::int64_t channels, std::int64_t side) {
    return builder.add_value(
        {.storage = builder.add_storage({.size_bytes = channels * side * side * 4}),
         .shape = std::vector<std::int64_t>{1, channels, side, side}});
  };
  const ValueId x = map(2, 4);
  const ValueId y = map(2, 4);
  const ValueId whole =
      builder.add_value({.storage = builder.add_storage({.size_bytes = 2 * 8 * 4 * 4}),
                         .shape = std::vector<std::int64_t>{1, 2, 8, 4}});
  const ValueId out = map(2, 4);
  builder.add_op(
      {.kind = "Concat", .operands = {x, y}, .results = {whole}, .attributes = {{"axis", {2}}}});
  builder.add_op({.kind = "Conv", .operands = {whole}, .results = {out}});
  EXPECT_TRUE(find_candidates(builder.build()).empty());
}

TEST(Rewrite, RefusesAnOpThatIsNoCandidate) {
  NetBuilder net(4);
  const ValueId x = net.input(2);
  net.sink({net.relu(x)});
  const Graph graph = net.build();
  EXPECT_THROW(apply_at(graph, std::vector{OpId(0)}), InvalidArgument);
}

TEST(Rewrite, ChangesNothingWhereItDoesNotPay) {
  NetBuilder net(4);
  const ValueId x = net.input(64);
  const ValueId big = net.conv(x, 64, 1);
  const ValueId small = net.conv(big, 1, 1);
  net.sink({net.conv(net.concat({small, net.relu(small)}), 1, 1)});
  const Graph graph = net.build();
  const Rewritten rewritten = rewrite_where_it_pays(graph, solve);
  EXPECT_EQ(rewritten.candidates, 1);
  EXPECT_TRUE(rewritten.applied.empty());
  EXPECT_EQ(rewritten.graph.op_count(), graph.op_count());
}

TEST(Rewrite, AppliesOnlyThePlacesThatPay) {
  NetBuilder net(4);
  const ValueId x = net.input(1);
  // A small place that does not matter, then a large one that does.
  const ValueId a = net.conv(net.concat({net.relu(x), net.conv(x, 1, 1)}), 1, 1);
  std::vector<ValueId> wide;
  for (int i = 0; i < 4; ++i) wide.push_back(net.conv(a, 32, 1));
  net.sink({net.conv(net.concat(wide), 8, 1)});
  const Rewritten rewritten = rewrite_where_it_pays(net.build(), solve);
  EXPECT_EQ(rewritten.candidates, 2);
  ASSERT_EQ(rewritten.applied.size(), 1u);
  EXPECT_EQ(rewritten.applied[0].parts, 4);
  EXPECT_LT(rewritten.solved.peak_bytes, rewritten.peak_before_bytes);
}

TEST(Rewrite, ExactOnlyLeavesSumsAlone) {
  NetBuilder net(4);
  const ValueId a = net.input(1);
  std::vector<ValueId> wide;
  for (int i = 0; i < 4; ++i) wide.push_back(net.conv(a, 32, 1));
  net.sink({net.conv(net.concat(wide), 8, 1)});
  const Rewritten rewritten = rewrite_where_it_pays(net.build(), solve, {.exact_only = true});
  EXPECT_TRUE(rewritten.applied.empty());
}

TEST(Rewrite, KeepsEverythingElseOfTheGraph) {
  const Graph graph =
      graph::read_onnx_file(PLIMSOLL_TEST_DATA "/graphs/inference/darts-imagenet.onnx");
  const Graph same = apply_at(graph, {});
  ASSERT_EQ(same.op_count(), graph.op_count());
  EXPECT_EQ(graph::peak_bytes(same, same.program_order()),
            graph::peak_bytes(graph, graph.program_order()));
}

TEST(Rewrite, LowersThePeakOfTheTrainingStepOfAWideConcatenation) {
  NetBuilder net(8);
  const ValueId x = net.input(4);
  std::vector<ValueId> wide;
  for (int i = 0; i < 4; ++i) wide.push_back(net.relu(net.conv(x, 16, 3)));
  const ValueId whole = net.concat(wide);
  const ValueId y = net.conv(whole, 4, 1);
  const std::int64_t seed = net.last_seed();
  const ValueId dw = net.weight_gradient(whole, y, 1);
  std::vector<ValueId> kept = {dw};
  for (const ValueId v : net.split(net.data_gradient(y, 64, 1, seed), {16, 16, 16, 16}))
    kept.push_back(net.conv(v, 1, 1));
  net.sink(kept);
  const Rewritten rewritten = rewrite_where_it_pays(net.build(), solve);
  EXPECT_EQ(rewritten.applied.size(), 2u);
  EXPECT_LT(rewritten.solved.peak_bytes * 3, rewritten.peak_before_bytes * 2);
}

}  // namespace
}  // namespace plimsoll::rewrite
