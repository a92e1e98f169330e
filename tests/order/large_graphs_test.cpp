// SPDX-License-Identifier: Apache-2.0
// Graphs of 10^4 and 10^5 operators: sound results in bounded memory.
#include <cstdint>

#include <gtest/gtest.h>

#include "plimsoll/graph/memory.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"

#include "made_graphs.h"
#include "resident_memory.h"

namespace plimsoll::order {
namespace {

TEST(LargeGraphs, ATrainingStepOfAHundredThousandOperatorsIsProvedAndVerified) {
  const graph::Graph graph = testing::resnet_training(100'000);
  const OrderResult result = solve(graph, {});
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_TRUE(result.proved());
  const Verdict verdict = verify(graph, make_certificate(graph, result));
  EXPECT_TRUE(verdict.valid()) << verdict.reason;
  EXPECT_LT(testing::most_resident_bytes(), std::int64_t{1} << 30);
}

TEST(LargeGraphs, WideLayersGiveAnOrderABoundAndAnHonestGap) {
  const graph::Graph graph = testing::wide_layers(10'000, 1000, 1);
  Options options;
  options.time_limit_seconds = -1;
  options.work_limit = 1'000'000;
  options.table_bytes = 64 << 20;
  const OrderResult result = solve(graph, options);
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_LT(result.peak_bytes, result.program_peak_bytes);
  EXPECT_LE(result.lower_bound_bytes, result.peak_bytes);
  EXPECT_FALSE(result.proved());
  EXPECT_LT(testing::most_resident_bytes(), std::int64_t{1} << 30);
}

}  // namespace
}  // namespace plimsoll::order
