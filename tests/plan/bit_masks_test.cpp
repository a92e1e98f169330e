// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/bit_masks.h"

#include <gtest/gtest.h>

#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/step_graph.h"

#include "plan_cases.h"

namespace plimsoll::plan {
namespace {

using graph::DataType;
using graph::Graph;
using graph::GraphBuilder;
using graph::OpId;
using graph::StorageId;
using testing::round_device;

// One layer with dropout, whose mask of 800 elements is idle while `middle` runs.
//
//     x -> dropout -> y, mask;   y -> middle -> z -> z' ;   mask, z' -> backward -> dx
Graph dropout_step(DataType type, std::int64_t element, bool is_named) {
  GraphBuilder builder;
  const auto x = builder.add_tensor(100, graph::ValueKind::kInput);
  const auto y = builder.add_tensor(100);
  const auto mask = builder.add_value(
      {.storage = builder.add_storage({.size_bytes = 800 * element}), .data_type = type});
  const auto z = builder.add_tensor(100);
  const auto z2 = builder.add_tensor(100);
  const auto dx = builder.add_tensor(100, graph::ValueKind::kOutput, true);
  graph::OpSpec dropout{.kind = "dropout", .operands = {x}, .results = {y, mask}};
  dropout.flags = graph::kRandom;
  if (is_named) dropout.attributes = {{"two_valued", {1}}};
  builder.add_op(dropout);
  builder.add_op({.kind = "middle", .operands = {y}, .results = {z}, .workspace_bytes = 5000});
  builder.add_op({.kind = "middle", .operands = {z}, .results = {z2}, .workspace_bytes = 5000});
  builder.add_op({.kind = "backward", .operands = {mask, z2}, .results = {dx}});
  return builder.build();
}

TEST(BitMasks, KeepsABoolOrANamedValueAsBits) {
  for (const auto& [type, element, is_named] :
       {std::tuple(DataType::kBool, 1, false), std::tuple(DataType::kFloat32, 4, true)}) {
    const Graph graph = dropout_step(type, element, is_named);
    const BitMasks masks = pack_bit_masks(graph);
    ASSERT_EQ(masks.packed, std::vector<StorageId>{StorageId(2)});
    EXPECT_EQ(masks.saved_bytes, 800 * element - 100);
    ASSERT_EQ(masks.graph.op_count(), 6U);
    const auto order = masks.graph.program_order();
    EXPECT_EQ(masks.graph.kind(order[1]), "pack_bits");
    EXPECT_EQ(masks.graph.kind(order[4]), "unpack_bits");
    // What the backward op reads is the unpacked mask: as large, in a storage of its own.
    const auto read = masks.graph.operands(order[5])[0];
    EXPECT_EQ(masks.graph.producer(read), order[4]);
    EXPECT_EQ(masks.graph.size_bytes(read), 800 * element);
  }
}

TEST(BitMasks, LeavesOtherValuesAlone) {
  EXPECT_TRUE(pack_bit_masks(dropout_step(DataType::kUInt8, 1, false)).packed.empty());
  EXPECT_TRUE(pack_bit_masks(dropout_step(DataType::kUnknown, 1, true)).packed.empty());
  EXPECT_EQ(pack_bit_masks(dropout_step(DataType::kUInt8, 1, false)).graph.op_count(), 0U);
}

TEST(BitMasks, ChangesNothingElseInAStep) {
  const Graph graph = make_step_graph(make_layer_net("alexnet", 8), {});
  const BitMasks masks = pack_bit_masks(graph);
  ASSERT_EQ(masks.packed.size(), 2U);
  EXPECT_EQ(masks.graph.op_count(), graph.op_count() + 4);
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    EXPECT_EQ(masks.graph.size_bytes(StorageId(i)), graph.size_bytes(StorageId(i)));
    EXPECT_EQ(masks.graph.live_at_end(StorageId(i)), graph.live_at_end(StorageId(i)));
  }
  std::vector<std::string> names;
  for (const OpId o : masks.graph.program_order())
    if (!masks.graph.kind(o).ends_with("pack_bits")) names.emplace_back(masks.graph.name(o));
  std::vector<std::string> before;
  for (const OpId o : graph.program_order()) before.emplace_back(graph.name(o));
  EXPECT_EQ(names, before);
}

// Noise that is drawn once, cannot move and cannot run again: its bits make the smaller budget.
TEST(BitMasks, LowersTheSmallestBudgetWhereAMaskIsInTheWay) {
  const Graph graph = dropout_step(DataType::kFloat32, 4, true);
  const BitMasks masks = pack_bit_masks(graph);
  Planner bytes(graph, round_device(0), {});
  Planner bits(masks.graph, round_device(0), {});
  EXPECT_EQ(bytes.minimum_budget_bytes(), 3200 + 100 + 100 + 5000);
  EXPECT_EQ(bits.minimum_budget_bytes(), 100 + 100 + 100 + 5000);
  EXPECT_GT(bits.plan(6000).predicted_ns, bytes.plan(1 << 20).predicted_ns);  // it has a cost
}

}  // namespace
}  // namespace plimsoll::plan
