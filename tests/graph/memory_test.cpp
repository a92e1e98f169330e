// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/memory.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_graph.h"

namespace plimsoll::graph {
namespace {

using ::testing::ElementsAre;

TEST(MemoryProfile, AddsUpThePictureOfTheHeader) {
  GraphBuilder builder;
  const ValueId x = builder.add_tensor(3, ValueKind::kInput);
  const ValueId y = builder.add_tensor(10);
  const ValueId z = builder.add_tensor(1, ValueKind::kOutput, true);
  builder.add_op({.kind = "a", .operands = {x}, .results = {y}, .workspace_bytes = 5});
  builder.add_op({.kind = "b", .operands = {y}, .results = {z}});
  const Graph graph = builder.build();
  const MemoryProfile profile = memory_profile(graph, graph.program_order());
  EXPECT_EQ(profile.start_bytes, 3);
  EXPECT_THAT(profile.during_bytes, ElementsAre(18, 11));
  EXPECT_THAT(profile.after_bytes, ElementsAre(10, 1));
  EXPECT_EQ(profile.peak_bytes, 18);
  EXPECT_EQ(profile.peak_step, 0);
}

TEST(MemoryProfile, OverwritesAnOperandOnlyWhereItDies) {
  for (const bool read_later : {false, true}) {
    GraphBuilder builder;
    const ValueId x = builder.add_tensor(8, ValueKind::kInput);
    const ValueId y = builder.add_tensor(8);
    builder.add_op({.operands = {x}, .results = {y}, .inplace_operand = x});
    builder.add_op({.operands = read_later ? std::vector{x, y} : std::vector{y}});
    const Graph graph = builder.build();
    EXPECT_EQ(peak_bytes(graph, graph.program_order()), read_later ? 16 : 8);
  }
}

TEST(MemoryProfile, CountsAStorageOnceForAllItsVersions) {
  GraphBuilder builder;
  const StorageId s = builder.add_storage({.size_bytes = 8});
  ValueId last = builder.add_value({.storage = s});
  builder.add_op({.results = {last}});
  for (int i = 0; i < 3; ++i) {
    const ValueId next = builder.add_value({.storage = s, .overwrites = last});
    builder.add_op({.operands = {last}, .results = {next}});
    last = next;
  }
  const Graph graph = builder.build();
  const MemoryProfile profile = memory_profile(graph, graph.program_order());
  EXPECT_THAT(profile.during_bytes, ElementsAre(8, 8, 8, 8));
  EXPECT_EQ(profile.after_bytes.back(), 0);
}

TEST(MemoryProfile, BearsAnUnorderedStorageWithItsFirstWriter) {
  GraphBuilder builder;
  const StorageId sum = builder.add_storage({.size_bytes = 8, .unordered_writes = true});
  std::vector<ValueId> parts;
  std::vector<OpId> writers;
  for (int i = 0; i < 2; ++i) {
    parts.push_back(builder.add_value({.storage = sum}));
    writers.push_back(builder.add_op({.results = {parts.back()}}));
  }
  const OpId reader = builder.add_op({.operands = parts});
  const Graph graph = builder.build();
  EXPECT_THAT(graph.births(sum), ElementsAre(writers[0], writers[1]));
  const std::vector<OpId> backwards = {writers[1], writers[0], reader};
  EXPECT_THAT(memory_profile(graph, backwards).during_bytes, ElementsAre(8, 8, 8));
}

TEST(MemoryProfile, CountsWhatIsLiveThroughout) {
  GraphBuilder builder;
  builder.add_tensor(5, ValueKind::kParameter);  // never read, never freed
  builder.add_tensor(7, ValueKind::kInput);      // never read: freed before the first step
  builder.add_op({.workspace_bytes = 1});
  const Graph graph = builder.build();
  EXPECT_EQ(peak_bytes(graph, graph.program_order()), 6);
}

TEST(CheckOrder, RefusesWhatIsNoTopologicalPermutation) {
  GraphBuilder builder;
  const ValueId x = builder.add_tensor(1);
  const OpId a = builder.add_op({.results = {x}});
  const OpId b = builder.add_op({.operands = {x}});
  const Graph graph = builder.build();
  for (const std::vector<OpId>& bad :
       {std::vector<OpId>{a}, {b, a}, {a, a}, {a, OpId(7)}, {a, OpId()}, {a, b, b}})
    EXPECT_THROW(check_order(graph, bad), InvalidArgument);
  EXPECT_NO_THROW(check_order(graph, std::vector<OpId>{a, b}));
}

// The model of ALGORITHMS.md, written a second time over sets of events, without increments:
// f(S) adds every storage with a birth in S whose readers' ends are not all in S.
std::int64_t event_model_peak(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<std::uint8_t> started(graph.op_count(), 0);
  std::vector<std::uint8_t> ended(graph.op_count(), 0);
  const auto level = [&] {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < graph.storage_count(); ++i) {
      const StorageId s(i);
      bool born = graph.live_at_start(s);
      for (const OpId o : graph.births(s)) born = born || started[o.index()] != 0;
      bool dead = !graph.live_at_end(s);
      for (const OpId o : graph.touchers(s))
        dead = dead && (graph.inplace_storage(o) == s ? started : ended)[o.index()] != 0;
      if (born && !dead) sum += graph.size_bytes(s);
    }
    for (std::size_t i = 0; i < graph.op_count(); ++i) {
      if (started[i] != 0 && ended[i] == 0) sum += graph.workspace_bytes(OpId(i));
    }
    return sum;
  };
  std::int64_t peak = level();
  for (const OpId o : order) {
    started[o.index()] = 1;
    peak = std::max(peak, level());
    ended[o.index()] = 1;
    peak = std::max(peak, level());
  }
  return peak;
}

TEST(MemoryProfile, EqualsTheModelOverSetsOfEvents) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed, {.ops = 9});
    std::mt19937 random(seed);
    const std::vector<OpId> order = testing::random_order(graph, random);
    EXPECT_EQ(peak_bytes(graph, order), event_model_peak(graph, order));
  }
}

TEST(MemoryState, UndoTakesBackRun) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed, {.ops = 12});
    std::mt19937 random(seed);
    const std::vector<OpId> order = testing::random_order(graph, random);
    MemoryState state(graph);
    std::vector<std::int64_t> levels;
    for (const OpId o : order) {
      levels.push_back(state.live_bytes());
      const StepMemory seen = state.peek(o);
      const StepMemory step = state.run(o);
      EXPECT_EQ(seen.during_bytes, step.during_bytes);
      EXPECT_EQ(seen.after_bytes, step.after_bytes);
    }
    for (std::size_t i = order.size(); i-- > 0;) {
      state.undo(order[i]);
      EXPECT_EQ(state.live_bytes(), levels[i]);
    }
  }
}

TEST(LiveStorages, AddUpToTheProfile) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed, {.ops = 8});
    const auto order = graph.program_order();
    const MemoryProfile profile = memory_profile(graph, order);
    for (std::size_t step = 0; step < order.size(); ++step) {
      std::int64_t sum = graph.workspace_bytes(order[step]);
      for (const StorageId s : live_storages(graph, order, step)) sum += graph.size_bytes(s);
      EXPECT_EQ(sum, profile.during_bytes[step]);
    }
  }
}

}  // namespace
}  // namespace plimsoll::graph
