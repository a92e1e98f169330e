// SPDX-License-Identifier: Apache-2.0
// The random graphs that randomly wired networks are made from.
//
// Nouns: Wiring (a directed acyclic graph on 0..n-1 whose edges go from lower to higher numbers).
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll::models {

struct Wiring {
  // Predecessors of each node in rising order; every one is lower than the node.
  std::vector<std::vector<std::int32_t>> predecessors;
  // Nodes without predecessors, and nodes without successors, in rising order.
  std::vector<std::int32_t> inputs() const;
  std::vector<std::int32_t> outputs() const;
};

enum class WiringKind : std::uint8_t { kWattsStrogatz, kErdosRenyi, kBarabasiAlbert };

struct WiringOptions {
  WiringKind kind = WiringKind::kWattsStrogatz;
  // 2..10,000.
  std::int32_t nodes = 32;
  // Watts-Strogatz: each node starts with k neighbours on a ring, k even and below `nodes`.
  // Barabási-Albert: each new node links to k earlier ones, 1 <= k < nodes. Unused otherwise.
  std::int32_t k = 4;
  // Watts-Strogatz: the chance that an edge is rewired. Erdős-Rényi: the chance of an edge.
  double p = 0.75;
  std::uint64_t seed = 1;
};

// Draws an undirected graph and directs every edge from the lower to the higher number.
// Cost: O(nodes * k), Erdős-Rényi O(nodes^2). Errors: InvalidArgument for values out of range.
// Determinism: the seed alone decides, on every machine (own SplitMix64 generator).
// Source: Xie, Kirillov, Girshick, He, "Exploring Randomly Wired Neural Networks for Image
// Recognition", 2019, section 3.
Wiring draw_wiring(const WiringOptions& options);

}  // namespace plimsoll::models
