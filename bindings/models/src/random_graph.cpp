// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/models/random_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::models {
namespace {

using Edges = std::set<std::pair<std::int32_t, std::int32_t>>;

// SplitMix64 (Steele, Lea, Flood 2014): a few lines that give the same numbers everywhere, which
// the distributions of the standard library do not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < p; }
  std::int32_t below(std::int32_t n) {
    return static_cast<std::int32_t>(next() % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

std::pair<std::int32_t, std::int32_t> edge(std::int32_t a, std::int32_t b) {
  return {std::min(a, b), std::max(a, b)};
}

Edges watts_strogatz(const WiringOptions& options, Random& random) {
  const std::int32_t n = options.nodes;
  Edges edges;
  for (std::int32_t node = 0; node < n; ++node)
    for (std::int32_t step = 1; step <= options.k / 2; ++step)
      edges.insert(edge(node, (node + step) % n));
  for (std::int32_t step = 1; step <= options.k / 2; ++step) {
    for (std::int32_t node = 0; node < n; ++node) {
      if (!random.chance(options.p)) continue;
      const std::int32_t target = random.below(n);
      const auto wanted = edge(node, target);
      // An edge to itself or one that exists stays where it was.
      if (target == node || edges.count(wanted) > 0) continue;
      edges.erase(edge(node, (node + step) % n));
      edges.insert(wanted);
    }
  }
  return edges;
}

Edges erdos_renyi(const WiringOptions& options, Random& random) {
  Edges edges;
  for (std::int32_t a = 0; a < options.nodes; ++a)
    for (std::int32_t b = a + 1; b < options.nodes; ++b)
      if (random.chance(options.p)) edges.insert({a, b});
  return edges;
}

Edges barabasi_albert(const WiringOptions& options, Random& random) {
  Edges edges;
  // Every end of every edge stands here once, so a uniform draw prefers nodes of high degree.
  std::vector<std::int32_t> ends;
  for (std::int32_t node = options.k; node < options.nodes; ++node) {
    std::set<std::int32_t> targets;
    if (node == options.k) {
      for (std::int32_t first = 0; first < options.k; ++first) targets.insert(first);
    }
    while (static_cast<std::int32_t>(targets.size()) < options.k)
      targets.insert(
          ends[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(ends.size())))]);
    for (const std::int32_t target : targets) {
      edges.insert(edge(target, node));
      ends.push_back(target);
      ends.push_back(node);
    }
  }
  return edges;
}

void check(const WiringOptions& options) {
  const auto refuse = [](std::string_view what, const auto& value, std::string_view right) {
    throw InvalidArgument(fmt::format("random graph: {} = {} must be {}", what, value, right));
  };
  if (options.nodes < 2 || options.nodes > 10000) refuse("nodes", options.nodes, "2 to 10000");
  if (options.p < 0 || options.p > 1) refuse("p", options.p, "0 to 1");
  if (options.kind == WiringKind::kErdosRenyi) return;
  if (options.k < 1 || options.k >= options.nodes)
    refuse("k", options.k, fmt::format("1 to nodes - 1 = {}", options.nodes - 1));
  if (options.kind == WiringKind::kWattsStrogatz && options.k % 2 != 0)
    refuse("k", options.k, "even in a Watts-Strogatz graph");
}

}  // namespace

std::vector<std::int32_t> Wiring::inputs() const {
  std::vector<std::int32_t> found;
  for (std::size_t node = 0; node < predecessors.size(); ++node)
    if (predecessors[node].empty()) found.push_back(static_cast<std::int32_t>(node));
  return found;
}

std::vector<std::int32_t> Wiring::outputs() const {
  std::vector<bool> has_successor(predecessors.size(), false);
  for (const auto& list : predecessors)
    for (const std::int32_t node : list) has_successor[static_cast<std::size_t>(node)] = true;
  std::vector<std::int32_t> found;
  for (std::size_t node = 0; node < has_successor.size(); ++node)
    if (!has_successor[node]) found.push_back(static_cast<std::int32_t>(node));
  return found;
}

Wiring draw_wiring(const WiringOptions& options) {
  check(options);
  Random random(options.seed);
  Edges edges;
  switch (options.kind) {
    case WiringKind::kWattsStrogatz:
      edges = watts_strogatz(options, random);
      break;
    case WiringKind::kErdosRenyi:
      edges = erdos_renyi(options, random);
      break;
    case WiringKind::kBarabasiAlbert:
      edges = barabasi_albert(options, random);
      break;
  }
  Wiring wiring;
  wiring.predecessors.resize(static_cast<std::size_t>(options.nodes));
  for (const auto& [from, to] : edges)
    wiring.predecessors[static_cast<std::size_t>(to)].push_back(from);
  return wiring;
}

}  // namespace plimsoll::models
