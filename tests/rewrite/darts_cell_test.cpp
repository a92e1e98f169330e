// SPDX-License-Identifier: Apache-2.0
#include "darts_cell.h"

#include <gtest/gtest.h>

#include "plimsoll/graph/json.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"
#include "plimsoll/rewrite/rewrite.h"

namespace plimsoll::rewrite {
namespace {

// SERENITY prints 903 and 753 kB of 1000 bytes: six and five feature maps.
constexpr std::int64_t kMapBytes = 48 * 28 * 28 * 4;

order::OrderResult solve(const graph::Graph& graph) { return order::solve(graph, {}); }

TEST(DartsCell, NeedsSixMapsInTheBestOrderAndFiveRewritten) {
  const Rewritten rewritten = rewrite_where_it_pays(testing::darts_cell(), solve);
  EXPECT_EQ(rewritten.peak_before_bytes, 6 * kMapBytes);
  EXPECT_EQ(rewritten.peak_before_bytes / 1000, 903);
  EXPECT_EQ(rewritten.solved.peak_bytes, 5 * kMapBytes);
  EXPECT_EQ((rewritten.solved.peak_bytes + 500) / 1000, 753);
  EXPECT_TRUE(rewritten.solved.proved());
  const auto certificate = order::make_certificate(rewritten.graph, rewritten.solved);
  EXPECT_TRUE(order::verify(rewritten.graph, certificate).valid());
}

TEST(DartsCell, ComesOutTheSameBySerenityAlone) {
  order::Options serenity;
  serenity.algorithm = order::Algorithm::kSerenity;
  serenity.time_limit_seconds = -1;
  const graph::Graph cell = testing::darts_cell();
  const order::OrderResult ordered = order::solve(cell, serenity);
  EXPECT_EQ(ordered.peak_bytes, 6 * kMapBytes);
  EXPECT_TRUE(ordered.proved());
  const Rewritten rewritten = rewrite_where_it_pays(
      cell, [&](const graph::Graph& graph) { return order::solve(graph, serenity); });
  EXPECT_EQ(rewritten.solved.peak_bytes, 5 * kMapBytes);
  EXPECT_TRUE(rewritten.solved.proved());
}

TEST(DartsCell, NeedsSixMapsWhereTheSumHasAFixedOrder) {
  const graph::Graph cell = testing::darts_cell();
  const graph::Graph free = apply_at(cell, std::vector{find_candidates(cell)[0].op});
  // Ties the parts together, first part first, as a rewriting without free accumulation does.
  std::string json = graph::write_json(free);
  std::vector<graph::OpId> parts;
  for (std::size_t i = 0; i < free.op_count(); ++i) {
    if (free.kind(graph::OpId(i)) == "ConcatConv.part") parts.emplace_back(i);
  }
  ASSERT_EQ(parts.size(), 4u);
  // The lines of the ops are the last of the file, in order.
  std::size_t at = json.find("\"ops\"");
  for (std::size_t i = 0; i < free.op_count(); ++i) {
    at = json.find("\n  {", at + 1);
    for (std::size_t k = 1; k < parts.size(); ++k) {
      if (parts[k] == graph::OpId(i))
        json.insert(at + 4, "\"after\":[" + std::to_string(parts[k - 1].value()) + "],");
    }
  }
  const graph::Graph fixed = graph::read_json(json, "fixed");
  EXPECT_EQ(solve(fixed).peak_bytes, 6 * kMapBytes);
}

TEST(DartsCell, EqualsTheFileInTheDataFolder) {
  const graph::Graph file = graph::read_json_file(PLIMSOLL_TEST_DATA "/darts-cell.json");
  EXPECT_EQ(graph::write_json(file), graph::write_json(testing::darts_cell()));
}

}  // namespace
}  // namespace plimsoll::rewrite
