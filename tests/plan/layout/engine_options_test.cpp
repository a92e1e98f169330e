// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_validate.h"

#include "plan/layout/reduce.h"
#include "plan/layout/search.h"
#include "random_problem.h"

namespace plimsoll::plan {
namespace {

using testing::BruteForce;
using testing::random_problem;

LayoutSearchRules rules_of(unsigned bits) {
  return {.section_inference = (bits & 1) != 0,
          .dominance = (bits & 2) != 0,
          .fail_first = (bits & 4) != 0,
          .decomposition = (bits & 8) != 0,
          .memory = (bits & 16) != 0,
          .hatless = (bits & 32) != 0};
}

TEST(LayoutOptions, NoSwitchChangesTheOptimum) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const LayoutProblem problem = random_problem(
        seed,
        {.with_alignment = seed % 3 == 1, .with_gaps = seed % 5 == 2, .with_fixed = seed % 7 == 3});
    const std::int64_t least = BruteForce(problem).least_height();
    if (least < 0) continue;
    for (unsigned bits = 0; bits < 128; ++bits) {
      LayoutOptions options;
      options.rules = rules_of(bits);
      options.reductions = (bits & 64) != 0;
      const LayoutResult result = solve_layout(problem, options);
      ASSERT_EQ(result.status, LayoutStatus::kOptimal) << "seed " << seed << " rules " << bits;
      ASSERT_EQ(result.arena_bytes(), least) << "seed " << seed << " rules " << bits;
      ASSERT_FALSE(validate_layout(problem, result.offsets_bytes).has_value());
    }
  }
}

layout_detail::SearchVariant by_index(const layout_detail::Instance& instance) {
  layout_detail::SearchVariant variant;
  variant.rank.resize(instance.items.size());
  std::iota(variant.rank.begin(), variant.rank.end(), 0);
  return variant;
}

TEST(LayoutOptions, SearchAloneFindsTheLeastHeightAndRulesOutAllBelow) {
  int proofs = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const LayoutProblem problem = random_problem(seed, {.most_time = 6,
                                                        .most_size = 7,
                                                        .with_alignment = seed % 4 == 1,
                                                        .with_gaps = seed % 4 == 2,
                                                        .with_fixed = seed % 8 == 3});
    const std::int64_t least = BruteForce(problem).least_height();
    const layout_detail::Reduction reduction = layout_detail::reduce(problem, 0, false);
    if (least <= 0) continue;
    const layout_detail::Instance& instance = reduction.parts[0].instance;
    layout_detail::SectionSearch search(instance, rules_of(static_cast<unsigned>(seed % 64)));
    const layout_detail::SearchVariant variant = by_index(instance);
    for (std::int64_t target = std::max<std::int64_t>(1, least - 3); target < least; ++target) {
      ASSERT_EQ(search.run(target, variant, 1'000'000, {}),
                layout_detail::SearchOutcome::kExhausted)
          << "seed " << seed << " target " << target << " least " << least;
      ASSERT_GT(search.next_target(), target);
      ASSERT_LE(search.next_target(), least) << "seed " << seed << " target " << target;
      proofs += target >= reduction.parts[0].load ? 1 : 0;
    }
    ASSERT_EQ(search.run(least, variant, 1'000'000, {}), layout_detail::SearchOutcome::kFound)
        << "seed " << seed;
    ASSERT_EQ(height_of(instance, search.offsets()), least) << "seed " << seed;
  }
  EXPECT_GT(proofs, 300);
}

// Nodes to pack without waste, without the help of the other stages.
std::int64_t nodes_to_decide(const LayoutSearchRules& rules) {
  std::int64_t nodes = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::int64_t bytes = seed % 3 == 0 ? 12 : 60;
    LayoutProblem problem = testing::perfect_problem(seed, 30, 20, bytes);
    // Two problems side by side: what fails in one must not be retried for all of the other.
    for (LayoutBuffer b : testing::perfect_problem(seed + 1000, 30, 20, bytes).buffers) {
      b.lifetime = {b.lifetime.begin + 1000, b.lifetime.end + 1000};
      problem.buffers.push_back(b);
    }
    const layout_detail::Reduction reduction = layout_detail::reduce(problem, 0, false);
    for (const layout_detail::Part& part : reduction.parts) {
      layout_detail::SectionSearch search(part.instance, rules);
      search.run(part.load, by_index(part.instance), 20'000, {});
      nodes += search.nodes();
    }
  }
  return nodes;
}

struct RuleCase {
  const char* name;
  bool LayoutSearchRules::* rule;
};
class LayoutRule : public ::testing::TestWithParam<RuleCase> {};

TEST_P(LayoutRule, VisitsFewerNodesThanWithoutIt) {
  const LayoutSearchRules all = rules_of(63);
  LayoutSearchRules without = all;
  without.*GetParam().rule = false;
  EXPECT_LT(nodes_to_decide(all), nodes_to_decide(without));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, LayoutRule,
    ::testing::Values(RuleCase{"section_inference", &LayoutSearchRules::section_inference},
                      RuleCase{"dominance", &LayoutSearchRules::dominance},
                      RuleCase{"fail_first", &LayoutSearchRules::fail_first},
                      RuleCase{"decomposition", &LayoutSearchRules::decomposition},
                      RuleCase{"memory", &LayoutSearchRules::memory},
                      RuleCase{"hatless", &LayoutSearchRules::hatless}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LayoutOptions, EveryAlgorithmIsValidAndNoneBeatsTheBound) {
  for (const LayoutAlgorithm algorithm : {LayoutAlgorithm::kAuto, LayoutAlgorithm::kGreedy,
                                          LayoutAlgorithm::kSearch, LayoutAlgorithm::kLocal}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const LayoutProblem problem = random_problem(seed, {.most_buffers = 80,
                                                          .most_time = 40,
                                                          .most_size = 90,
                                                          .with_alignment = true,
                                                          .with_gaps = true,
                                                          .with_windows = true});
      LayoutOptions options;
      options.algorithm = algorithm;
      options.node_limit = 20'000;
      options.local_limit = 40;
      const LayoutResult result = solve_layout(problem, options);
      const auto violation = validate_layout(problem, result.offsets_bytes);
      ASSERT_FALSE(violation.has_value()) << violation->message;
      ASSERT_LE(result.load_bytes(), result.lower_bound_bytes());
      ASSERT_LE(result.lower_bound_bytes(), result.arena_bytes());
    }
  }
}

TEST(LayoutOptions, AHintIsTakenWhereItIsFree) {
  LayoutProblem problem;
  problem.buffers.resize(2);
  problem.buffers[0].lifetime = problem.buffers[1].lifetime = {0, 2};
  problem.buffers[0].size_bytes = problem.buffers[1].size_bytes = 4;
  problem.buffers[0].hint_offset_bytes = 4;
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.offsets_bytes, (std::vector<std::int64_t>{4, 0}));
}

TEST(LayoutOptions, AlignmentRoundsSizesAndOffsets) {
  LayoutProblem problem;
  problem.buffers.resize(2);
  for (LayoutBuffer& b : problem.buffers) {
    b.lifetime = {0, 2};
    b.size_bytes = 5;
  }
  const LayoutProblem aligned = align_layout_problem(problem, 512);
  const LayoutResult result = solve_layout(aligned);
  EXPECT_EQ(result.arena_bytes(), 1024);
  EXPECT_FALSE(validate_layout(aligned, result.offsets_bytes).has_value());
}

}  // namespace
}  // namespace plimsoll::plan
