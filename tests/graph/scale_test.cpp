// SPDX-License-Identifier: Apache-2.0
// What a million and ten million ops cost.
#include <sys/resource.h>

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"

namespace plimsoll::graph {
namespace {

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// A residual net forward: every third op reads a value from six ops before.
Graph residual(std::int32_t ops) {
  GraphBuilder builder;
  std::vector<ValueId> values = {builder.add_tensor(1024, ValueKind::kInput)};
  for (std::int32_t i = 0; i < ops; ++i) {
    OpSpec spec;
    spec.kind = i % 3 == 2 ? "add" : "conv";
    spec.operands = {values.back()};
    if (i % 3 == 2 && values.size() > 6) spec.operands.push_back(values[values.size() - 6]);
    values.push_back(builder.add_tensor(1024));
    spec.results = {values.back()};
    spec.cost_ns = 1000;
    builder.add_op(spec);
  }
  return builder.build();
}

TEST(Scale, AMillionOpsTakeLessThanAGibibyte) {
  const std::int64_t before = peak_resident_bytes();
  const Graph graph = residual(1'000'000);
  EXPECT_LT(graph.footprint_bytes(), std::size_t{1} << 29);
  EXPECT_LT(peak_resident_bytes() - before, std::int64_t{1} << 30);
  // Two residuals that wait for their adds, what the op reads and what it writes.
  EXPECT_EQ(peak_bytes(graph, graph.program_order()), 4 * 1024);
}

TEST(Scale, TwoHundredThousandOpsComeBackFromJson) {
  const Graph graph = residual(200'000);
  const std::int64_t before = peak_resident_bytes();
  const Graph again = read_json(write_json(graph), "g.json");
  EXPECT_EQ(again.op_count(), graph.op_count());
  EXPECT_LT(peak_resident_bytes() - before, std::int64_t{1} << 30);
}

// Ten million ops in one chain, as text: right, and within 4 GiB.
TEST(Scale, ReadsAChainOfTenMillionOps) {
  constexpr int kOps = 10'000'000;
  std::string text = std::to_string(kOps + 1) + " " + std::to_string(kOps) + "\n";
  text += "8 1 0\n";
  for (int i = 0; i < kOps; ++i) text += "8 0 0\n";
  for (int i = 0; i < kOps; ++i)
    text += "0 1 1 " + std::to_string(i) + " " + std::to_string(i + 1) + " n\n";
  std::int64_t peak = 0;
  {
    const Graph graph = read_text(text, "chain.txt");
    peak = peak_bytes(graph, graph.program_order());
  }
  EXPECT_EQ(peak, 16);
  EXPECT_LT(peak_resident_bytes(), std::int64_t{4} << 30);
}

}  // namespace
}  // namespace plimsoll::graph
