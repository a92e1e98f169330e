// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/models/random_graph.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::models {
namespace {

std::size_t edge_count(const Wiring& wiring) {
  std::size_t count = 0;
  for (const auto& list : wiring.predecessors) count += list.size();
  return count;
}

TEST(RandomGraph, EdgesGoFromLowerToHigherAndAreDistinct) {
  for (const WiringKind kind :
       {WiringKind::kWattsStrogatz, WiringKind::kErdosRenyi, WiringKind::kBarabasiAlbert}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const Wiring wiring = draw_wiring({.kind = kind, .nodes = 20, .k = 4, .seed = seed});
      for (std::size_t node = 0; node < wiring.predecessors.size(); ++node) {
        const auto& list = wiring.predecessors[node];
        EXPECT_TRUE(std::is_sorted(list.begin(), list.end())) << "seed " << seed;
        EXPECT_EQ(std::adjacent_find(list.begin(), list.end()), list.end()) << "seed " << seed;
        if (!list.empty()) {
          EXPECT_LT(list.back(), static_cast<std::int32_t>(node));
        }
      }
      EXPECT_FALSE(wiring.inputs().empty());
      EXPECT_FALSE(wiring.outputs().empty());
    }
  }
}

TEST(RandomGraph, KindsHaveTheEdgesTheirDefinitionGives) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    // Rewiring moves edges and never loses one: n * k / 2.
    EXPECT_EQ(edge_count(draw_wiring({.nodes = 32, .k = 4, .p = 0.75, .seed = seed})), 64U);
    // Every node after the first k brings k edges.
    EXPECT_EQ(edge_count(draw_wiring(
                  {.kind = WiringKind::kBarabasiAlbert, .nodes = 32, .k = 5, .seed = seed})),
              (32U - 5U) * 5U);
  }
  EXPECT_EQ(edge_count(draw_wiring({.kind = WiringKind::kErdosRenyi, .nodes = 10, .p = 1})), 45U);
  EXPECT_EQ(edge_count(draw_wiring({.kind = WiringKind::kErdosRenyi, .nodes = 10, .p = 0})), 0U);
}

TEST(RandomGraph, WithoutRewiringTheRingStands) {
  const Wiring wiring = draw_wiring({.nodes = 5, .k = 2, .p = 0});
  EXPECT_EQ(wiring.predecessors[1], std::vector<std::int32_t>({0}));
  EXPECT_EQ(wiring.predecessors[4], std::vector<std::int32_t>({0, 3}));
}

TEST(RandomGraph, TheSeedAloneDecides) {
  const auto draw = [](std::uint64_t seed) {
    return draw_wiring({.nodes = 32, .k = 4, .p = 0.75, .seed = seed}).predecessors;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(RandomGraph, ValuesThatMakeNoGraphAreRefused) {
  EXPECT_THROW(draw_wiring({.nodes = 1}), InvalidArgument);
  EXPECT_THROW(draw_wiring({.nodes = 8, .k = 3}), InvalidArgument);
  EXPECT_THROW(draw_wiring({.nodes = 8, .k = 8}), InvalidArgument);
  EXPECT_THROW(draw_wiring({.nodes = 8, .k = 2, .p = 1.5}), InvalidArgument);
  EXPECT_THROW(draw_wiring({.kind = WiringKind::kBarabasiAlbert, .nodes = 4, .k = 4}),
               InvalidArgument);
}

}  // namespace
}  // namespace plimsoll::models
