// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/builder.h"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs `make`, which has to throw InvalidGraph, and returns its message.
std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const InvalidGraph& error) {
    return error.what();
  }
  return "not refused";
}

TEST(GraphBuilder, GivesTheEmptyGraphForNothing) {
  const Graph graph = GraphBuilder().build();
  EXPECT_EQ(graph.op_count(), 0u);
  EXPECT_EQ(graph.program_order().size(), 0u);
}

TEST(GraphBuilder, KeepsWhatItWasGiven) {
  GraphBuilder builder;
  const StorageId s = builder.add_storage({.size_bytes = 64});
  const ValueId x = builder.add_value({.storage = s,
                                       .kind = ValueKind::kInput,
                                       .name = "x",
                                       .data_type = DataType::kFloat32,
                                       .shape = std::vector<std::int64_t>{2, 8}});
  const ValueId y = builder.add_tensor(64, ValueKind::kOutput, true, "y");
  const OpId o = builder.add_op({.kind = "relu",
                                 .name = "first",
                                 .operands = {x},
                                 .results = {y},
                                 .inplace_operand = x,
                                 .workspace_bytes = 5,
                                 .cost_ns = 2.5,
                                 .phase = Phase::kBackward,
                                 .flags = kRandom,
                                 .attributes = {{"axis", {1, 2}}, {"empty", {}}}});
  const Graph graph = builder.build();
  EXPECT_EQ(graph.name(x), "x");
  EXPECT_THAT(graph.shape(x), ElementsAre(2, 8));
  EXPECT_TRUE(graph.has_shape(x));
  EXPECT_FALSE(graph.has_shape(y));
  EXPECT_TRUE(graph.live_at_start(graph.storage(x)));
  EXPECT_TRUE(graph.live_at_end(graph.storage(y)));
  EXPECT_EQ(graph.inplace_storage(o), s);
  EXPECT_EQ(graph.inplace_result(o), y);
  EXPECT_EQ(graph.workspace_bytes(o), 5);
  EXPECT_EQ(graph.cost_ns(o), 2.5);
  EXPECT_EQ(graph.phase(o), Phase::kBackward);
  EXPECT_TRUE(graph.has_flag(o, kRandom));
  EXPECT_EQ(graph.name(o), "first");
  EXPECT_EQ(graph.kind(o), "relu");
  EXPECT_THAT(graph.attribute(o, "axis"), ElementsAre(1, 2));
  EXPECT_TRUE(graph.attribute(o, "none").empty());
  EXPECT_EQ(graph.attributes(o).size(), 2u);
}

TEST(GraphBuilder, MakesDataAntiAndOutputEdges) {
  GraphBuilder builder;
  const StorageId s = builder.add_storage({.size_bytes = 8});
  const ValueId v0 = builder.add_value({.storage = s});
  const ValueId v1 = builder.add_value({.storage = s, .overwrites = v0});
  const ValueId read = builder.add_tensor(1);
  const OpId write = builder.add_op({.kind = "write", .results = {v0}});
  const OpId reader = builder.add_op({.kind = "read", .operands = {v0}, .results = {read}});
  const OpId overwrite = builder.add_op({.kind = "overwrite", .results = {v1}});
  const Graph graph = builder.build();
  EXPECT_THAT(graph.predecessors(reader), ElementsAre(write));
  EXPECT_THAT(graph.predecessors(overwrite), ElementsAre(write, reader));
  EXPECT_THAT(graph.predecessor_kinds(overwrite), ElementsAre(EdgeKind::kOutput, EdgeKind::kAnti));
  EXPECT_THAT(graph.touchers(s), ElementsAre(write, reader, overwrite));
  EXPECT_THAT(graph.births(s), ElementsAre(write));
}

TEST(GraphBuilder, ChainsRandomOpsAndSideEffectsButNotEachWithTheOther) {
  GraphBuilder builder;
  std::vector<OpId> ops;
  for (const std::uint8_t flags : {kRandom, kSideEffect, kRandom, kSideEffect})
    ops.push_back(builder.add_op({.kind = "op", .flags = flags}));
  const Graph graph = builder.build();
  EXPECT_THAT(graph.predecessors(ops[2]), ElementsAre(ops[0]));
  EXPECT_THAT(graph.predecessors(ops[3]), ElementsAre(ops[1]));
}

TEST(GraphBuilder, OrdersOpsGivenBackToFront) {
  GraphBuilder builder;
  const ValueId a = builder.add_tensor(1);
  const ValueId b = builder.add_tensor(1);
  const OpId last = builder.add_op({.kind = "last", .operands = {b}});
  const OpId second = builder.add_op({.kind = "second", .operands = {a}, .results = {b}});
  const OpId first = builder.add_op({.kind = "first", .results = {a}});
  const Graph graph = builder.build();
  EXPECT_THAT(graph.program_order(), ElementsAre(first, second, last));
}

TEST(GraphBuilder, NamesTheOpsOfACycle) {
  GraphBuilder builder;
  const ValueId a = builder.add_tensor(1);
  const ValueId b = builder.add_tensor(1);
  builder.add_op({.kind = "free"});
  builder.add_op({.kind = "there", .operands = {a}, .results = {b}});
  builder.add_op({.kind = "back", .operands = {b}, .results = {a}});
  EXPECT_THAT(refusal([&] { builder.build(); }),
              ::testing::AllOf(HasSubstr("cycle"), HasSubstr("op 1 ('there')"),
                               HasSubstr("op 2 ('back')"), ::testing::Not(HasSubstr("free"))));
}

TEST(GraphBuilder, RefusesAnOpThatReadsItsOwnResult) {
  GraphBuilder builder;
  const ValueId a = builder.add_tensor(1);
  builder.add_op({.kind = "self", .operands = {a}, .results = {a}});
  EXPECT_THAT(refusal([&] { builder.build(); }), HasSubstr("'self' depends on itself"));
}

TEST(GraphBuilder, RefusesBadSizes) {
  GraphBuilder builder;
  EXPECT_THAT(refusal([&] { builder.add_storage({.size_bytes = -1}); }), HasSubstr("-1 bytes"));
  EXPECT_THAT(refusal([&] { builder.add_tensor(std::numeric_limits<std::int64_t>::max()); }),
              HasSubstr("beyond 2^62"));
  builder.add_tensor(std::int64_t{1} << 61);
  EXPECT_THAT(refusal([&] { builder.add_tensor(std::int64_t{1} << 61); }), HasSubstr("storage 1"));
  EXPECT_THAT(refusal([&] { builder.add_op({.workspace_bytes = -3}); }), HasSubstr("-3 bytes"));
  const StorageId s = builder.add_storage({.size_bytes = 4});
  EXPECT_THAT(refusal([&] { builder.add_value({.storage = s, .size_bytes = 5}); }),
              HasSubstr("5 bytes in a storage of 4"));
}

TEST(GraphBuilder, RefusesDanglingIds) {
  GraphBuilder builder;
  EXPECT_THAT(refusal([&] { builder.add_value({.storage = StorageId(3)}); }),
              HasSubstr("storage 3, which does not exist"));
  EXPECT_THAT(refusal([&] { builder.add_op({.operands = {ValueId(9)}}); }),
              HasSubstr("op 0: reads value 9"));
  EXPECT_THAT(refusal([&] { builder.add_op({.results = {ValueId()}}); }),
              HasSubstr("writes value -1"));
  builder.add_op({.after = {OpId(5)}});
  EXPECT_THAT(refusal([&] { builder.build(); }), HasSubstr("comes after op 5"));
}

TEST(GraphBuilder, RefusesTwoProducersAndTwoOverwriters) {
  GraphBuilder builder;
  const ValueId a = builder.add_tensor(1);
  builder.add_op({.results = {a}});
  EXPECT_THAT(refusal([&] { builder.add_op({.results = {a}}); }),
              HasSubstr("writes value 0, which op 0 writes already"));
  const ValueId b = builder.add_tensor(1);
  EXPECT_THAT(refusal([&] { builder.add_op({.results = {b, b}}); }), HasSubstr("already"));
  const StorageId s = builder.add_storage({.size_bytes = 1});
  const ValueId c = builder.add_value({.storage = s});
  builder.add_value({.storage = s, .overwrites = c});
  EXPECT_THAT(refusal([&] { builder.add_value({.storage = s, .overwrites = c}); }),
              HasSubstr("overwrites already"));
}

TEST(GraphBuilder, RefusesTwoFirstVersionsInAnOrderedStorage) {
  GraphBuilder builder;
  const StorageId s = builder.add_storage({.size_bytes = 1});
  builder.add_value({.storage = s});
  builder.add_value({.storage = s});
  EXPECT_THAT(refusal([&] { builder.build(); }), HasSubstr("which version it overwrites"));
}

TEST(GraphBuilder, RefusesCostsThatAreNoNumbers) {
  GraphBuilder builder;
  for (const double cost :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0})
    EXPECT_THAT(refusal([&] { builder.add_op({.cost_ns = cost}); }), HasSubstr("costs are finite"));
}

TEST(GraphBuilder, RefusesContradictoryInPlaceCandidates) {
  GraphBuilder builder;
  const ValueId a = builder.add_tensor(4);
  const ValueId b = builder.add_tensor(5);
  const ValueId c = builder.add_tensor(4);
  EXPECT_THAT(
      refusal([&] { builder.add_op({.operands = {a}, .results = {b}, .inplace_operand = a}); }),
      HasSubstr("of equal size"));
  EXPECT_THAT(
      refusal([&] { builder.add_op({.operands = {b}, .results = {c}, .inplace_operand = a}); }),
      HasSubstr("none of its operands"));
  EXPECT_THAT(
      refusal([&] { builder.add_op({.operands = {a}, .results = {b, c}, .inplace_operand = a}); }),
      HasSubstr("not clear"));
}

TEST(GraphBuilder, KeepsParametersAliveToTheEnd) {
  GraphBuilder builder;
  const ValueId weight = builder.add_tensor(4, ValueKind::kParameter);
  builder.add_op({.operands = {weight}});
  const Graph graph = builder.build();
  EXPECT_TRUE(graph.live_at_end(graph.storage(weight)));
}

}  // namespace
}  // namespace plimsoll::graph
