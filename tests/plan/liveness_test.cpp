// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/liveness.h"

#include <algorithm>
#include <map>
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

// How many positions of each pass were compared.
struct Compared {
  int forward = 0;
  int backward = 0;
};

void expect_definition(const Graph& graph, const std::vector<OpId>& order, Compared& compared) {
  const Liveness liveness = analyze_liveness(graph, order);
  for (std::size_t at = 0; at < order.size(); ++at) {
    std::int64_t bytes = graph.workspace_bytes(order[at]);
    for (std::size_t i = 0; i < graph.storage_count(); ++i) {
      const bool alive = is_alive(graph, order, StorageId(i), at);
      ASSERT_EQ(liveness.intervals[i].contains(static_cast<std::int64_t>(at)), alive)
          << "storage " << i << ", position " << at;
      if (alive) bytes += graph.size_bytes(StorageId(i));
    }
    ASSERT_EQ(liveness.during_bytes[at], bytes) << "position " << at;
    const bool is_forward = graph.phase(order[at]) == graph::Phase::kForward;
    ++(is_forward ? compared.forward : compared.backward);
  }
  ASSERT_EQ(liveness.peak_bytes, graph::peak_bytes(graph, order));
}

TEST(Liveness, EqualsTheDefinitionOnTenThousandRandomGraphs) {
  Compared compared;
  for (std::uint32_t seed = 0; seed < 10000; ++seed) {
    SCOPED_TRACE(seed);
    graph::testing::RandomGraphOptions options;
    options.ops = 2 + static_cast<int>(seed % 11);
    const Graph graph = graph::testing::random_graph(seed, options);
    std::mt19937 random(seed);
    ASSERT_NO_FATAL_FAILURE(
        expect_definition(graph, graph::testing::random_order(graph, random), compared));
  }
}

//     x0 --> f0 --> f1 --> f2 (loss)          a random DAG forward; backward every op in reverse:
//       \_____________/^                      reads the gradient and some of what its forward op
//     d0 <-- b0 <-- b1 <-- b2                 read and wrote, and adds to gradients in place
class TrainingStep {
 public:
  explicit TrainingStep(std::uint32_t seed) : random_(seed) {}

  Graph make() {
    for (int i = below(3); i >= 0; --i) make_value(ValueKind::kInput, below(4) == 0);
    const int count = 2 + below(6);
    for (int i = 0; i < count; ++i) forward();
    gradient_[made_.back()] = builder_.add_tensor(below(9), ValueKind::kGradient);
    builder_.add_op({.kind = "loss",
                     .operands = {made_.back()},
                     .results = {gradient_[made_.back()]},
                     .phase = graph::Phase::kBackward});
    while (!ops_.empty()) backward();
    return builder_.build();
  }

 private:
  struct Forward {
    std::vector<graph::ValueId> reads;
    graph::ValueId output;
  };
  int below(unsigned n) { return static_cast<int>(random_() % n); }
  graph::ValueId make_value(ValueKind kind, bool stays) {
    made_.push_back(builder_.add_tensor(below(10), kind, stays));
    return made_.back();
  }
  // Each reads what was made last, so that the gradient reaches all of them, and up to two others.
  void forward() {
    Forward op;
    op.reads = {made_.back()};
    for (int i = below(3); i > 0; --i) {
      const graph::ValueId other = made_[std::size_t(below(unsigned(made_.size())))];
      if (std::find(op.reads.begin(), op.reads.end(), other) == op.reads.end())
        op.reads.push_back(other);
    }
    op.output = make_value(ValueKind::kActivation, below(8) == 0);
    builder_.add_op({.kind = "forward",
                     .operands = op.reads,
                     .results = {op.output},
                     .workspace_bytes = below(4) == 0 ? below(6) : 0});
    ops_.push_back(op);
  }
  void backward() {
    const Forward op = ops_.back();
    ops_.pop_back();
    std::vector<graph::ValueId> reads = {gradient_[op.output]};
    for (const graph::ValueId v : op.reads)
      if (below(3) > 0) reads.push_back(v);
    if (below(2) == 0) reads.push_back(op.output);
    std::vector<graph::ValueId> results;
    for (const graph::ValueId v : op.reads) {
      graph::ValueId& sum = gradient_[v];
      if (!sum.valid()) {
        sum = builder_.add_tensor(below(10), ValueKind::kGradient, below(6) == 0);
      } else {
        reads.push_back(sum);
        sum = builder_.add_value(
            {.storage = builder_.storage(sum), .kind = ValueKind::kGradient, .overwrites = sum});
      }
      results.push_back(sum);
    }
    builder_.add_op({.kind = "backward",
                     .operands = reads,
                     .results = results,
                     .phase = graph::Phase::kBackward});
  }

  std::mt19937 random_;
  GraphBuilder builder_;
  std::vector<graph::ValueId> made_;
  std::vector<Forward> ops_;
  std::map<graph::ValueId, graph::ValueId> gradient_;  // so far, by the value it belongs to
};

TEST(Liveness, EqualsTheDefinitionInBothPassesOfTenThousandRandomTrainingSteps) {
  Compared compared;
  for (std::uint32_t seed = 0; seed < 10000; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = TrainingStep(seed).make();
    const Compared before = compared;
    const auto program = graph.program_order();
    ASSERT_NO_FATAL_FAILURE(expect_definition(graph, {program.begin(), program.end()}, compared));
    ASSERT_GT(compared.forward, before.forward);
    ASSERT_GT(compared.backward, before.backward);
    std::mt19937 random(seed);
    ASSERT_NO_FATAL_FAILURE(
        expect_definition(graph, graph::testing::random_order(graph, random), compared));
  }
  RecordProperty("forward_positions", compared.forward);
  RecordProperty("backward_positions", compared.backward);
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
