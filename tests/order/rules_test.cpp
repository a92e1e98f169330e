// SPDX-License-Identifier: Apache-2.0
// Each pruning rule visits fewer states than the search without it, for the same optimum.
#include <ostream>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "plimsoll/graph/text.h"
#include "plimsoll/order/from_graph.h"

namespace plimsoll::order {
namespace {

struct Case {
  const char* rule;
  const char* graph;
  bool FusionRules::* fusion;
  bool SearchRules::* search;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.rule; }

class Rule : public ::testing::TestWithParam<Case> {};

TEST_P(Rule, VisitsFewerStates) {
  const Case& c = GetParam();
  const auto graph = graph::read_text_file(std::string(PLIMSOLL_TEST_DATA "/graphs/") + c.graph);
  Options without;
  without.time_limit_seconds = -1;
  without.work_limit = 20'000'000;
  if (c.fusion != nullptr) without.fusion.*c.fusion = false;
  if (c.search != nullptr) without.rules.*c.search = false;
  const OrderResult on = solve(graph, {}), off = solve(graph, without);
  ASSERT_TRUE(on.proved());
  EXPECT_LT(on.states, off.states);
  // Without the rule the search may end early: then its peak may be higher.
  EXPECT_LE(on.peak_bytes, off.peak_bytes);
  EXPECT_GE(on.lower_bound_bytes, off.lower_bound_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    EachRule, Rule,
    ::testing::Values(
        Case{"forward", "training/x-densenet121-1.txt", &FusionRules::forward, nullptr},
        Case{"lazy", "inference/nasnet-cifar.txt", &FusionRules::lazy, nullptr},
        Case{"chains", "inference/randwire3-wsum-32.txt", &FusionRules::chains, nullptr},
        Case{"readers", "inference/nasnet-cifar.txt", &FusionRules::readers, nullptr},
        Case{"transitive", "training/x-densenet121-1.txt", &FusionRules::transitive, nullptr},
        Case{"twins", "inference/nasnet-cifar.txt", &FusionRules::twins, nullptr},
        Case{"forward commits", "inference/pnas-imagenet.txt", nullptr,
             &SearchRules::forward_commits},
        Case{"chain commits", "inference/pnas-imagenet.txt", nullptr, &SearchRules::chain_commits},
        Case{"late commits", "inference/pnas-imagenet.txt", nullptr, &SearchRules::late_commits},
        Case{"separators", "training/t-resnet50.txt", nullptr, &SearchRules::separators},
        Case{"failed states", "inference/randwire2-wsum-32.txt", nullptr,
             &SearchRules::failed_states},
        Case{"budget jumps", "training/t-resnet50.txt", nullptr, &SearchRules::budget_jumps},
        Case{"min cuts", "inference/randwire2-stack-32.txt", nullptr, &SearchRules::min_cuts}));

// Operators that only write outputs go last; without the rule, every subset of them is tried
// beside every state of the rest.
TEST(BackwardCommits, VisitFewerStates) {
  ProblemInput input;
  std::mt19937 random(7);
  const auto add_op = [&](std::int64_t bytes, bool kept) {
    input.storages.push_back({bytes, kept});
    input.births.emplace_back(static_cast<std::int32_t>(input.storages.size()) - 1, input.ops);
    return input.ops++;
  };
  input.storages.push_back({5, false});
  for (int i = 0; i < 24; ++i) {
    const std::int32_t op = add_op(1 + random() % 50, false);
    const auto storages = static_cast<std::int32_t>(input.storages.size());
    for (int k = 0; k < 2; ++k)
      input.reads.emplace_back(static_cast<std::int32_t>(random() % (storages - 1)), op);
  }
  for (int i = 0; i < 6; ++i) {
    const std::int32_t op = add_op(10 + i, true);
    input.reads.emplace_back(1 + i, op);
    input.reads.emplace_back(20 + i % 3, op);
  }
  const Problem problem = build_problem(std::move(input));
  Options on, off;
  on.fusion = off.fusion = {false, false, false, false, false, false};
  on.rules.min_cuts = off.rules.min_cuts = false;
  off.rules.backward_commits = false;
  const Result with = solve(problem, on), without = solve(problem, off);
  ASSERT_TRUE(with.proved);
  ASSERT_TRUE(without.proved);
  EXPECT_EQ(with.peak_bytes, without.peak_bytes);
  EXPECT_LT(with.states, without.states);
}

}  // namespace
}  // namespace plimsoll::order
