// SPDX-License-Identifier: Apache-2.0
// Whatever is switched off, the search finds the optimum that brute force finds, with a certificate
// that the checker accepts.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/graph/memory.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"

#include "../graph/random_graph.h"
#include "brute_force.h"

namespace plimsoll::order {
namespace {

using graph::testing::RandomGraphMaker;
using graph::testing::RandomGraphOptions;

graph::Graph random_graph(std::uint32_t seed) {
  RandomGraphOptions options;
  options.ops = 6 + static_cast<int>(seed % 7);
  options.max_size = seed % 3 == 0 ? 3 : 9;
  return RandomGraphMaker(seed, options).make();
}

std::vector<std::pair<std::string, Options>> switch_variants() {
  std::vector<std::pair<std::string, Options>> variants = {{"all on", {}}};
  const auto off = [&](const std::string& name, auto member_of, auto flag) {
    Options options;
    (options.*member_of).*flag = false;
    variants.emplace_back(name, options);
  };
  off("forward fusion", &Options::fusion, &FusionRules::forward);
  off("lazy fusion", &Options::fusion, &FusionRules::lazy);
  off("chain fusion", &Options::fusion, &FusionRules::chains);
  off("readers", &Options::fusion, &FusionRules::readers);
  off("transitive", &Options::fusion, &FusionRules::transitive);
  off("twins", &Options::fusion, &FusionRules::twins);
  off("forward commits", &Options::rules, &SearchRules::forward_commits);
  off("chain commits", &Options::rules, &SearchRules::chain_commits);
  off("late commits", &Options::rules, &SearchRules::late_commits);
  off("backward commits", &Options::rules, &SearchRules::backward_commits);
  off("separators", &Options::rules, &SearchRules::separators);
  off("failed states", &Options::rules, &SearchRules::failed_states);
  off("budget jumps", &Options::rules, &SearchRules::budget_jumps);
  off("min cuts", &Options::rules, &SearchRules::min_cuts);
  off("beam", &Options::rules, &SearchRules::beam);
  off("windows", &Options::rules, &SearchRules::windows);
  Options plain;
  plain.fusion = {false, false, false, false, false, false};
  variants.emplace_back("no fusion at all", plain);
  plain.rules = {false, false, false, false, false, false, false, false, false, false};
  variants.emplace_back("nothing", plain);
  return variants;
}

class Optimum : public ::testing::TestWithParam<int> {};

TEST_P(Optimum, IsFoundProvedAndCertifiedWithEverySwitchOff) {
  const auto variants = switch_variants();
  const auto first = static_cast<std::uint32_t>(GetParam()) * 1000;
  for (std::uint32_t seed = first; seed < first + 1000; ++seed) {
    const graph::Graph graph = random_graph(seed);
    const std::int64_t least = testing::BruteForce(graph).least_peak();
    for (const auto& [name, options] : variants) {
      // Trying every order of more takes minutes.
      if (name == "nothing" && graph.op_count() > 12) continue;
      const OrderResult result = solve(graph, options);
      ASSERT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes)
          << name << " off, seed " << seed;
      ASSERT_EQ(result.peak_bytes, least) << name << " off, seed " << seed;
      ASSERT_EQ(result.lower_bound_bytes, least) << name << " off, seed " << seed;
      const Verdict verdict = verify(graph, make_certificate(graph, result));
      ASSERT_TRUE(verdict.valid()) << name << " off, seed " << seed << ": " << verdict.reason;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TenThousandRandomGraphs, Optimum, ::testing::Range(0, 10));

}  // namespace
}  // namespace plimsoll::order
