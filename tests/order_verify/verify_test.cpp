// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/order/certificate.h"

#include "random_graph.h"

namespace plimsoll::order {
namespace {

using graph::Graph;
using graph::OpId;
using ::testing::HasSubstr;

// The optimum by dynamic programming over all sets of executed ops; for at most 20 ops.
std::int64_t brute_force_peak(const Graph& graph, std::vector<OpId>* best_order = nullptr) {
  struct Best {
    std::int64_t peak;
    std::vector<OpId> order;
  };
  std::map<std::uint32_t, Best> layer = {{0, {graph::MemoryState(graph).live_bytes(), {}}}};
  for (std::size_t step = 0; step < graph.op_count(); ++step) {
    std::map<std::uint32_t, Best> next;
    for (const auto& [set, best] : layer) {
      graph::MemoryState state(graph);
      for (const OpId o : best.order) state.run(o);
      for (std::size_t i = 0; i < graph.op_count(); ++i) {
        const auto before = graph.predecessors(OpId(i));
        const auto has_run = [set = set](OpId o) { return (set >> o.index() & 1) != 0; };
        if (has_run(OpId(i)) || !std::all_of(before.begin(), before.end(), has_run)) continue;
        const std::int64_t peak = std::max(best.peak, state.peek(OpId(i)).during_bytes);
        const auto found = next.find(set | 1u << i);
        if (found != next.end() && found->second.peak <= peak) continue;
        std::vector<OpId> order = best.order;
        order.push_back(OpId(i));
        next[set | 1u << i] = {peak, order};
      }
    }
    layer = std::move(next);
  }
  if (best_order != nullptr) *best_order = layer.begin()->second.order;
  return layer.begin()->second.peak;
}

OrderResult optimal(const Graph& graph) {
  OrderResult result;
  result.peak_bytes = brute_force_peak(graph, &result.order);
  result.lower_bound_bytes = result.peak_bytes;
  result.proof = BoundProof::kExhausted;
  return result;
}

TEST(Verify, AcceptsTheOptimumOfEveryRandomGraph) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = graph::testing::random_graph(seed, {.ops = 6 + static_cast<int>(seed % 4)});
    const Verdict verdict = verify(graph, make_certificate(graph, optimal(graph)));
    EXPECT_TRUE(verdict.valid()) << verdict.reason;
    EXPECT_EQ(verdict.peak_bytes, verdict.lower_bound_bytes);
  }
}

TEST(Verify, RejectsABoundOneByteTooHigh) {
  int rejected = 0;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = graph::testing::random_graph(seed, {.ops = 8});
    // Claims that program order is optimal, where it is not.
    OrderResult result = program_order(graph);
    if (result.peak_bytes == brute_force_peak(graph)) continue;
    ++rejected;
    result.lower_bound_bytes = result.peak_bytes;
    result.proof = BoundProof::kExhausted;
    const Verdict verdict = verify(graph, make_certificate(graph, result));
    EXPECT_TRUE(verdict.peak_valid);
    EXPECT_FALSE(verdict.bound_valid);
    EXPECT_TRUE(verdict.bound_checked);
    EXPECT_THAT(verdict.reason, HasSubstr("found an order below"));
  }
  EXPECT_GT(rejected, 50);
}

TEST(Verify, ComputesCutsThatAreBoundsAndSometimesTight) {
  int tight = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = graph::testing::random_graph(seed, {.ops = 8});
    const std::int64_t optimum = brute_force_peak(graph);
    OrderResult result = optimal(graph);
    result.proof = BoundProof::kCut;
    bool any = false;
    for (std::size_t i = 0; i < graph.op_count(); ++i) {
      result.bound_op = OpId(i);
      any = any || verify(graph, make_certificate(graph, result)).valid();
      result.lower_bound_bytes = optimum + 1;
      result.peak_bytes = optimum;
      EXPECT_FALSE(verify(graph, make_certificate(graph, result)).valid());
      result.lower_bound_bytes = optimum;
    }
    tight += any ? 1 : 0;
  }
  EXPECT_GT(tight, 100);
}

// The cheapest state in which an op runs, by trying all sets.
TEST(Verify, CutEqualsTheCheapestStateOfAllSets) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const Graph graph = graph::testing::random_graph(seed, {.ops = 8});
    std::vector<std::int64_t> cheapest(graph.op_count(), std::int64_t{1} << 60);
    for (std::uint32_t set = 0; set < 1u << graph.op_count(); ++set) {
      std::vector<OpId> order;
      for (const OpId o : graph.program_order()) {
        if ((set >> o.index() & 1) != 0) order.push_back(o);
      }
      const auto has_run = [set](OpId o) { return (set >> o.index() & 1) != 0; };
      const auto runnable = [&](OpId o) {
        const auto before = graph.predecessors(o);
        return std::all_of(before.begin(), before.end(), has_run);
      };
      if (!std::all_of(order.begin(), order.end(), runnable)) continue;
      graph::MemoryState state(graph);
      for (const OpId o : order) state.run(o);
      for (std::size_t i = 0; i < graph.op_count(); ++i) {
        if (has_run(OpId(i)) || !runnable(OpId(i))) continue;
        cheapest[i] = std::min(cheapest[i], state.peek(OpId(i)).during_bytes);
      }
    }
    // Two ops may run at once in a state of events, never cheaper than one after the other; so
    // the cut, over all states, is the cheapest of the serial ones.
    for (std::size_t i = 0; i < graph.op_count(); ++i) {
      Certificate certificate = make_certificate(graph, program_order(graph));
      certificate.kind = Certificate::Kind::kCut;
      certificate.op = static_cast<std::int32_t>(i);
      certificate.lower_bound_bytes = std::min(cheapest[i], certificate.peak_bytes);
      EXPECT_TRUE(verify(graph, certificate).valid()) << "seed " << seed << " op " << i;
      certificate.lower_bound_bytes = cheapest[i] + 1;
      // What lies at the start and the end is a bound of its own.
      Certificate start_end = certificate;
      start_end.kind = Certificate::Kind::kStartEnd;
      EXPECT_EQ(verify(graph, certificate).valid(), verify(graph, start_end).valid())
          << "seed " << seed << " op " << i;
    }
  }
}

TEST(Verify, RejectsSeparatorsThatAreNone) {
  graph::GraphBuilder builder;
  const auto a = builder.add_tensor(1);
  const auto b = builder.add_tensor(1);
  builder.add_op({.results = {a}});
  builder.add_op({.results = {b}});
  builder.add_op({.operands = {a, b}});
  const Graph graph = builder.build();
  Certificate certificate = make_certificate(graph, optimal(graph));
  certificate.separators = {0, 2, 3};
  EXPECT_TRUE(verify(graph, certificate).valid());
  certificate.separators = {1};
  EXPECT_THAT(verify(graph, certificate).reason, HasSubstr("step 1 is no separator"));
  certificate.separators = {9};
  EXPECT_FALSE(verify(graph, certificate).valid());
}

TEST(Verify, SaysSoWhereItsLimitsEndTheCheck) {
  const Graph graph = graph::testing::random_graph(3, {.ops = 40, .max_size = 1000});
  OrderResult result = program_order(graph);
  result.lower_bound_bytes = result.peak_bytes;
  result.proof = BoundProof::kExhausted;
  const Verdict verdict = verify(graph, make_certificate(graph, result), {.max_states = 1});
  EXPECT_FALSE(verdict.valid());
  EXPECT_TRUE(verdict.peak_valid);
}

TEST(Certificate, ComesBackEqual) {
  const Graph graph = graph::testing::random_graph(5, {.ops = 9});
  const Certificate certificate = make_certificate(graph, optimal(graph));
  const std::string text = write_certificate(certificate);
  EXPECT_EQ(write_certificate(read_certificate(text, "c.json")), text);
}

// One change to the JSON of a certificate of an optimal order.
using Mutation = std::function<void(nlohmann::ordered_json&, std::mt19937&)>;

bool accepted(const Graph& graph, const std::string& text) {
  try {
    return verify(graph, read_certificate(text, "c.json")).valid();
  } catch (const InvalidFile&) {
    return false;
  }
}

// A certificate with all figures as in `json`, and a checksum that fits them.
std::string with_fitting_checksum(const nlohmann::ordered_json& json) {
  Certificate certificate;
  certificate.graph_digest = std::stoull(json["graph_digest"].get<std::string>(), nullptr, 16);
  certificate.order = json["order"].get<std::vector<std::int32_t>>();
  certificate.peak_bytes = json["peak_bytes"];
  certificate.lower_bound_bytes = json["lower_bound_bytes"];
  certificate.kind = Certificate::Kind::kExhausted;
  certificate.op = json["op"];
  certificate.separators = json["separators"].get<std::vector<std::int64_t>>();
  return write_certificate(certificate);
}

TEST(Verify, RejectsAHundredMutatedCertificates) {
  const std::vector<Mutation> mutations = {
      [](auto& json, auto&) { json["peak_bytes"] = json["peak_bytes"].template get<int>() - 1; },
      [](auto& json, auto&) { json["peak_bytes"] = json["peak_bytes"].template get<int>() + 1; },
      [](auto& json, auto&) {
        // Claims one byte more for both: the replay shows less.
        json["peak_bytes"] = json["peak_bytes"].template get<int>() + 1;
        json["lower_bound_bytes"] = json["peak_bytes"];
      },
      [](auto& json, auto&) {
        json["lower_bound_bytes"] = json["lower_bound_bytes"].template get<int>() + 1;
      },
      [](auto& json, auto& random) { json["order"].erase(random() % json["order"].size()); },
      [](auto& json, auto& random) {
        json["order"][random() % json["order"].size()] = json["order"][0];
        json["order"][0] = json["order"][1];
      },
      [](auto& json, auto&) { std::reverse(json["order"].begin(), json["order"].end()); },
      [](auto& json, auto&) { json["order"][2] = 1000; },
      [](auto& json, auto&) { json["graph_digest"] = "0123456789abcdef"; },
      [](auto& json, auto&) { json["separators"] = {1000}; },
  };
  int tried = 0;
  for (std::uint32_t seed = 0; tried < 200; ++seed) {
    const Graph graph = graph::testing::random_graph(seed, {.ops = 9});
    const std::string text = write_certificate(make_certificate(graph, optimal(graph)));
    ASSERT_TRUE(accepted(graph, text));
    for (std::size_t i = 0; i < mutations.size(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", mutation " + std::to_string(i));
      std::mt19937 random(seed);
      auto json = nlohmann::ordered_json::parse(text);
      if (graph.edge_count() == 0 && i == 6) continue;
      mutations[i](json, random);
      ++tried;
      EXPECT_FALSE(accepted(graph, with_fitting_checksum(json)));
      EXPECT_FALSE(accepted(graph, json.dump()));
    }
  }
}

TEST(Certificate, RefusesEveryFlippedByteOfItsFile) {
  const Graph graph = graph::testing::random_graph(7, {.ops = 9});
  const std::string text = write_certificate(make_certificate(graph, optimal(graph)));
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(accepted(graph, changed)) << i << " " << changed;
  }
}

}  // namespace
}  // namespace plimsoll::order
