// SPDX-License-Identifier: Apache-2.0
// Graphs of 10^6 and 10^7 operators stay within 4 GiB.
#include <cstdint>

#include <gtest/gtest.h>

#include "plimsoll/graph/memory.h"
#include "plimsoll/order/from_graph.h"

#include "made_graphs.h"
#include "resident_memory.h"

namespace plimsoll::order {
namespace {

constexpr std::int64_t kFourGibibytes = std::int64_t{4} << 30;

TEST(Scale, ATrainingStepOfAMillionOperatorsIsProved) {
  const graph::Graph graph = testing::resnet_training(1'000'000);
  const OrderResult result = solve(graph, {});
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_TRUE(result.proved());
  EXPECT_LT(testing::most_resident_bytes(), kFourGibibytes / 4);
}

// Deep as can be: nothing recurses.
TEST(Scale, AChainOfTenMillionOperatorsIsProved) {
  const graph::Graph graph = testing::deep_chain(10'000'000);
  Options options;
  options.time_limit_seconds = -1;
  const OrderResult result = solve(graph, options);
  EXPECT_EQ(result.order.size(), 10'000'000u);
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_EQ(result.peak_bytes, 69 + 70);
  EXPECT_TRUE(result.proved());
  EXPECT_LT(testing::most_resident_bytes(), kFourGibibytes);
}

TEST(Scale, WideLayersOfAHundredThousandOperatorsGiveAnHonestGap) {
  const graph::Graph graph = testing::wide_layers(100'000, 1000, 1);
  Options options;
  options.time_limit_seconds = 10;
  const OrderResult result = solve(graph, options);
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_LE(result.lower_bound_bytes, result.peak_bytes);
  EXPECT_LT(result.peak_bytes, result.program_peak_bytes);
  EXPECT_LT(testing::most_resident_bytes(), kFourGibibytes);
}

}  // namespace
}  // namespace plimsoll::order
