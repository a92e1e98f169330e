// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/json.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"

#include "random_graph.h"

namespace plimsoll::graph {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_json(text, "g.json");
  } catch (const InvalidFile& error) {
    return error.what();
  }
  return "not refused";
}

std::string document(const std::string& storages, const std::string& values,
                     const std::string& ops) {
  return R"({"format":"plimsoll-graph","version":1,"storages":[)" + storages + R"(],"values":[)" +
         values + R"(],"ops":[)" + ops + "]}";
}

TEST(JsonGraph, ComesBackEqual) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed, {.ops = 15});
    const std::string text = write_json(graph);
    const Graph again = read_json(text, "g.json");
    EXPECT_EQ(write_json(again), text);
    std::mt19937 random(seed);
    const auto order = testing::random_order(graph, random);
    EXPECT_EQ(peak_bytes(again, order), peak_bytes(graph, order));
    EXPECT_EQ(again.edge_count(), graph.edge_count());
  }
}

TEST(JsonGraph, KeepsEveryField) {
  GraphBuilder builder;
  const ValueId x = builder.add_value({.storage = builder.add_storage({.size_bytes = 8}),
                                       .kind = ValueKind::kGradient,
                                       .name = "x \"quoted\" \n",
                                       .size_bytes = 4,
                                       .data_type = DataType::kBFloat16,
                                       .shape = std::vector<std::int64_t>{}});
  const ValueId y = builder.add_tensor(8);
  builder.add_op({.kind = "k",
                  .name = "n",
                  .operands = {x, x},
                  .results = {y},
                  .after = {OpId(1)},
                  .inplace_operand = x,
                  .workspace_bytes = 3,
                  .cost_ns = 0.1,
                  .phase = Phase::kOptimizer,
                  .flags = kRandom | kSideEffect | kRecomputable | kHostSynchronising,
                  .attributes = {{"pads", {-1, 2}}}});
  builder.add_op({.kind = "later"});
  const Graph graph = builder.build();
  const Graph again = read_json(write_json(graph), "g.json");
  EXPECT_EQ(write_json(again), write_json(graph));
  EXPECT_EQ(again.name(x), graph.name(x));
  EXPECT_TRUE(again.has_shape(x));
  EXPECT_EQ(again.cost_ns(OpId(0)), 0.1);
  EXPECT_EQ(again.flags(OpId(0)), graph.flags(OpId(0)));
  EXPECT_EQ(again.program_order()[0], OpId(1));
}

TEST(JsonGraph, TakesAnyDistinctIds) {
  const Graph graph = read_json(
      document(R"({"id":70,"bytes":8},{"id":-3,"bytes":9})",
               R"({"id":5,"storage":-3,"x-note":1},{"id":2,"storage":70})",
               R"({"id":9,"operands":[5],"results":[2],"kind":"a"},{"id":1,"after":[9]})"),
      "g.json");
  EXPECT_EQ(graph.size_bytes(ValueId(0)), 9);
  EXPECT_EQ(graph.operands(OpId(0))[0], ValueId(0));
  EXPECT_EQ(graph.predecessors(OpId(1))[0], OpId(0));
}

TEST(JsonGraph, NamesThePlaceOfEveryFault) {
  EXPECT_THAT(refusal(""), HasSubstr("g.json, byte 1: is not valid JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("'plimsoll-graph'"));
  EXPECT_THAT(refusal(R"({"format":"plimsoll-graph","version":2})"),
              HasSubstr("version: is not 1"));
  EXPECT_THAT(refusal(R"({"format":"plimsoll-graph","version":1})"),
              HasSubstr("storages: is miss"));
  EXPECT_THAT(refusal(R"({"values":[]})"), HasSubstr("values: stands before 'storages'"));
  EXPECT_THAT(refusal(R"({"storages":3})"), HasSubstr("storages: is not an array"));
  EXPECT_THAT(refusal(R"({"storages":[],"storages":[]})"), HasSubstr("a second time"));
  EXPECT_THAT(refusal(R"({"storages":[3]})"), HasSubstr("storages[0]: is not an object"));
  EXPECT_THAT(refusal(document(R"({"bytes":-1})", "", "")), HasSubstr("storages[0]: a size of -1"));
  EXPECT_THAT(refusal(document(R"({"bytes":18446744073709551615})", "", "")),
              HasSubstr("storages[0].bytes"));
  EXPECT_THAT(refusal(document(R"({"bytes":1e300})", "", "")), HasSubstr("storages[0].bytes"));
  EXPECT_THAT(refusal(document(R"({"bytes":1.5})", "", "")), HasSubstr("not a whole number"));
  EXPECT_THAT(refusal(document(R"({"bytes":NaN})", "", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(document(R"({"bytes":1,"size":1})", "", "")), HasSubstr("storages[0].size"));
  EXPECT_THAT(refusal(document(R"({"bytes":1,"id":4},{"bytes":1,"id":4})", "", "")),
              HasSubstr("storages[1].id: 4 is taken already"));
  EXPECT_THAT(refusal(document(R"({"bytes":1})", R"({"storage":1})", "")),
              HasSubstr("values[0].storage: names storage 1"));
  EXPECT_THAT(refusal(document(R"({"bytes":1})", R"({"storage":0,"shape":[-2]})", "")),
              HasSubstr("values[0]: an extent of -2"));
  const std::string storage = R"({"bytes":1})";
  const std::string value = R"({"storage":0})";
  EXPECT_THAT(refusal(document(storage, value, R"({"operands":[0,1]})")),
              HasSubstr("ops[0].operands[1]: names value 1"));
  EXPECT_THAT(refusal(document(storage, value, R"({"results":[0]},{"results":[0]})")),
              HasSubstr("ops[1]: writes value 0, which op 0"));
  EXPECT_THAT(refusal(document(storage, value, R"({"operands":[0],"results":[0],"kind":"c"})")),
              HasSubstr("ops[0]: a cycle: 'c'"));
  EXPECT_THAT(refusal(document(storage, value, R"({"cost_ns":"x"})")), HasSubstr("ops[0].cost_ns"));
  EXPECT_THAT(refusal(document(storage, value, R"({"cost_ns":1e999})")), HasSubstr("g.json"));
  EXPECT_THAT(refusal(document(storage, value, R"({"after":[3]})")), HasSubstr("ops[0].after"));
  EXPECT_THAT(refusal(document(storage, value, R"({"flags":["fast"]})")),
              HasSubstr("ops[0].flags"));
  EXPECT_THAT(refusal(document(storage, value, R"({"attributes":{"a":["x"]}})")),
              HasSubstr("ops[0].attributes.a[0]"));
}

TEST(JsonGraph, RefusesDeepNestingWithoutDeepRecursion) {
  EXPECT_THAT(refusal(R"({"x":)" + std::string(5'000'000, '[')), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace plimsoll::graph
