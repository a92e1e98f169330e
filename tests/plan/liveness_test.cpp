// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/liveness.h"

#include <algorithm>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/graph/memory.h"

#include "../graph/random_graph.h"

namespace plimsoll::plan {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::OpId;
using graph::StorageId;
using graph::ValueKind;

// From the definition, one position and one storage at a time: alive where something has been
// written into it (or it was there from the start) and something is still to touch it or keep it.
bool is_alive(const Graph& graph, const std::vector<OpId>& order, StorageId s, std::size_t at) {
  const auto touches = [&](std::size_t i) {
    const auto touched = graph.touched(order[i]);
    return std::find(touched.begin(), touched.end(), s) != touched.end();
  };
  bool written = graph.live_at_start(s);
  for (std::size_t i = 0; i <= at && !written; ++i) {
    for (const auto v : graph.results(order[i])) written = written || graph.storage(v) == s;
  }
  bool needed_later = graph.live_at_end(s);
  for (std::size_t i = at + 1; i < order.size() && !needed_later; ++i) needed_later = touches(i);
  const bool handed_over = graph.inplace_storage(order[at]) == s && !needed_later;
  return written && (needed_later || (touches(at) && !handed_over));
}

TEST(Liveness, EqualsTheDefinitionOnTenThousandRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 10000; ++seed) {
    graph::testing::RandomGraphOptions options;
    options.ops = 2 + static_cast<int>(seed % 11);
    const Graph graph = graph::testing::random_graph(seed, options);
    std::mt19937 random(seed);
    const auto order = graph::testing::random_order(graph, random);
    const Liveness liveness = analyze_liveness(graph, order);
    for (std::size_t at = 0; at < order.size(); ++at) {
      std::int64_t bytes = graph.workspace_bytes(order[at]);
      for (std::size_t i = 0; i < graph.storage_count(); ++i) {
        const bool alive = is_alive(graph, order, StorageId(i), at);
        ASSERT_EQ(liveness.intervals[i].contains(static_cast<std::int64_t>(at)), alive)
            << "seed " << seed << ", storage " << i << ", position " << at;
        if (alive) bytes += graph.size_bytes(StorageId(i));
      }
      ASSERT_EQ(liveness.during_bytes[at], bytes) << "seed " << seed << ", position " << at;
    }
    ASSERT_EQ(liveness.peak_bytes, graph::peak_bytes(graph, order)) << "seed " << seed;
  }
}

TEST(Liveness, PeakItemsAddUpToThePeak) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    const Graph graph = graph::testing::random_graph(seed);
    const auto order = graph.program_order();
    const Liveness liveness = analyze_liveness(graph, order);
    if (liveness.peak_position < 0) continue;
    std::int64_t bytes =
        graph.workspace_bytes(order[static_cast<std::size_t>(liveness.peak_position)]);
    for (const PeakItem& item : explain_peak(graph, order, liveness))
      bytes += graph.size_bytes(item.storage);
    EXPECT_EQ(bytes, liveness.peak_bytes) << "seed " << seed;
  }
}

//     op        0  1  2  3       x feeds a; a feeds b and, much later, d: held across the peak
//     x (8)     [==)
//     a (4)     [===========)
//     b (2)        [=====)
//     c (16)          [=====)
TEST(Liveness, SaysWhoIsAliveAtThePeakAndWhy) {
  GraphBuilder builder;
  const auto x = builder.add_tensor(8, ValueKind::kInput);
  const auto a = builder.add_tensor(4);
  const auto b = builder.add_tensor(2);
  const auto c = builder.add_tensor(16);
  const auto d = builder.add_tensor(1, ValueKind::kOutput, true);
  const auto w = builder.add_tensor(32, ValueKind::kParameter, true);
  builder.add_op({.kind = "a", .operands = {x}, .results = {a}});
  builder.add_op({.kind = "b", .operands = {a}, .results = {b}});
  builder.add_op({.kind = "c", .operands = {b}, .results = {c}});
  builder.add_op({.kind = "d", .operands = {a, c}, .results = {d}});
  const Graph graph = builder.build();
  const Liveness liveness = analyze_liveness(graph, graph.program_order());
  EXPECT_EQ(liveness.peak_position, 2);
  EXPECT_EQ(liveness.peak_bytes, 32 + 4 + 2 + 16);
  const auto items = explain_peak(graph, graph.program_order(), liveness);
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].storage, graph.storage(w));
  EXPECT_EQ(items[0].reason, PeakReason::kPersistent);
  EXPECT_EQ(items[1].storage, graph.storage(c));
  EXPECT_EQ(items[1].reason, PeakReason::kWritten);
  EXPECT_EQ(items[2].storage, graph.storage(a));
  EXPECT_EQ(items[2].reason, PeakReason::kHeld);
  EXPECT_EQ(items[2].next_use, OpId(3));
  EXPECT_EQ(items[3].storage, graph.storage(b));
  EXPECT_EQ(items[3].reason, PeakReason::kRead);
}

}  // namespace
}  // namespace plimsoll::plan
