// SPDX-License-Identifier: Apache-2.0
// The solver's own certificates, changed so that they claim what is not so.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"

#include "../graph/random_graph.h"

namespace plimsoll::order {
namespace {

// A certified optimum, and another order of the same graph with a higher peak, if there is one.
struct Certified {
  graph::Graph graph;
  Certificate certificate;
  std::vector<std::int32_t> worse;
  std::int64_t worse_peak = 0;
};

Certified certify(graph::Graph graph) {
  const OrderResult solved = solve(graph, {});
  Certified result{std::move(graph), {}, {}, 0};
  result.certificate = make_certificate(result.graph, solved);
  std::mt19937 random(1);
  for (int i = 0; i < 20 && result.worse_peak <= solved.peak_bytes; ++i) {
    const auto order = graph::testing::random_order(result.graph, random);
    result.worse_peak = graph::peak_bytes(result.graph, order);
    result.worse.clear();
    for (const graph::OpId o : order) result.worse.push_back(o.value());
  }
  if (result.worse_peak <= solved.peak_bytes) result.worse.clear();
  return result;
}

// A change that makes the claim false; nothing where it does not apply.
using Mutation = std::function<std::optional<Certificate>(const Certified&)>;

std::optional<Certificate> with(const Certified& from,
                                const std::function<void(Certificate&)>& change) {
  Certificate changed = from.certificate;
  change(changed);
  return changed;
}

std::vector<std::pair<std::string, Mutation>> mutations() {
  const auto always = [](std::function<void(Certificate&)> change) {
    return [change](const Certified& from) { return with(from, change); };
  };
  return {
      {"a lower peak", always([](Certificate& c) { --c.peak_bytes, --c.lower_bound_bytes; })},
      {"a higher peak", always([](Certificate& c) { ++c.peak_bytes; })},
      {"a higher peak and bound",
       always([](Certificate& c) { ++c.peak_bytes, ++c.lower_bound_bytes; })},
      {"a bound above the peak", always([](Certificate& c) { ++c.lower_bound_bytes; })},
      {"another graph", always([](Certificate& c) { c.graph_digest ^= 1; })},
      {"an op left out", always([](Certificate& c) { c.order.pop_back(); })},
      {"an op twice", always([](Certificate& c) { c.order[0] = c.order[1]; })},
      {"an op too many", always([](Certificate& c) { c.order.push_back(0); })},
      {"an op that is not there", always([](Certificate& c) { c.order[0] = 1 << 30; })},
      {"a negative op", always([](Certificate& c) { c.order[0] = -1; })},
      {"a cut at no op", always([](Certificate& c) {
         c.kind = Certificate::Kind::kCut, c.op = 1 << 30, ++c.peak_bytes;
       })},
      {"an op before what it needs",
       [](const Certified& from) -> std::optional<Certificate> {
         for (std::size_t o = 0; o < from.graph.op_count(); ++o) {
           const auto before = from.graph.predecessors(graph::OpId(o));
           if (before.empty()) continue;
           return with(from, [&](Certificate& c) {
             std::iter_swap(std::find(c.order.begin(), c.order.end(), static_cast<std::int32_t>(o)),
                            std::find(c.order.begin(), c.order.end(), before[0].value()));
           });
         }
         return std::nullopt;
       }},
      {"a separator that is none",
       [](const Certified& from) -> std::optional<Certificate> {
         if (from.certificate.kind != Certificate::Kind::kExhausted) return std::nullopt;
         return with(from, [](Certificate& c) { c.separators.push_back(1 << 30); });
       }},
      {"a worse order under the optimum's figures",
       [](const Certified& from) -> std::optional<Certificate> {
         if (from.worse.empty()) return std::nullopt;
         return with(from, [&](Certificate& c) { c.order = from.worse; });
       }},
      {"a worse order called optimal",
       [](const Certified& from) -> std::optional<Certificate> {
         if (from.worse.empty()) return std::nullopt;
         return with(from, [&](Certificate& c) {
           c.order = from.worse;
           c.peak_bytes = c.lower_bound_bytes = from.worse_peak;
         });
       }},
      {"a worse order, its bound one byte too high",
       [](const Certified& from) -> std::optional<Certificate> {
         if (from.worse.empty()) return std::nullopt;
         return with(from, [&](Certificate& c) {
           c.order = from.worse;
           c.peak_bytes = from.worse_peak;
           ++c.lower_bound_bytes;
         });
       }},
  };
}

bool is_accepted(const graph::Graph& graph, const Certificate& certificate) {
  try {
    const std::string text = write_certificate(certificate);
    return verify(graph, read_certificate(text, "c.json")).valid();
  } catch (const InvalidFile&) {
    return false;
  }
}

TEST(Certificates, OfSolvedGraphsAreRejectedOnceMutated) {
  std::vector<Certified> originals;
  for (std::uint32_t seed = 0; seed < 60; ++seed)
    originals.push_back(certify(graph::testing::random_graph(seed, {.ops = 12, .max_size = 40})));
  for (const std::string name : {"inference/nasnet-cifar", "inference/randwire3-wsum-32",
                                 "training/t-resnet50", "training/x-vgg11-32"})
    originals.push_back(
        certify(graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/" + name + ".txt")));
  std::map<std::string, int> tried;
  std::map<Certificate::Kind, int> kinds;
  for (const Certified& original : originals) {
    ASSERT_TRUE(is_accepted(original.graph, original.certificate));
    ++kinds[original.certificate.kind];
    for (const auto& [name, mutate] : mutations()) {
      const auto changed = mutate(original);
      if (!changed) continue;
      ++tried[name];
      EXPECT_FALSE(is_accepted(original.graph, *changed))
          << name << ", graph " << &original - originals.data();
    }
  }
  for (const auto& [name, count] : tried) EXPECT_GE(count, 10) << name;
  EXPECT_EQ(tried.size(), mutations().size());
  EXPECT_GE(kinds[Certificate::Kind::kCut], 5);
  EXPECT_GE(kinds[Certificate::Kind::kExhausted], 5);
}

TEST(Certificates, HoldTheOperatorThatPinsThePeakOrABoundThatASearchProves) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const graph::Graph graph = graph::testing::random_graph(seed, {.ops = 14, .max_size = 40});
    const OrderResult solved = solve(graph, {});
    Certificate pin = make_certificate(graph, solved);
    ASSERT_TRUE(verify(graph, pin).valid()) << "seed " << seed;
    // What pins is the operator's cheapest state to the byte: the checker's own cut says so.
    ASSERT_TRUE(solved.pinned_by.op.valid()) << "seed " << seed;
    ASSERT_LE(solved.pinned_by.bytes, solved.lower_bound_bytes) << "seed " << seed;
    pin.kind = Certificate::Kind::kCut;
    pin.op = solved.pinned_by.op.value();
    pin.lower_bound_bytes = solved.pinned_by.bytes;
    ASSERT_TRUE(verify(graph, pin).valid()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace plimsoll::order
