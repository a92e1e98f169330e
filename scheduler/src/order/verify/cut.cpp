// SPDX-License-Identifier: Apache-2.0
// A state is a set S of events (start and end of ops) closed under "needs". With S the source side
// of a cut, every byte that is live in S is an arc that the cut has to pay:
//
//     birth (start of an op) --w--> dead(s) --inf--> every event that must be in S before s is dead
//     source ---------------w--> dead(s)                              for s live from the start
//     birth -w-> sink                                                 for s live to the end
//     a --inf--> b                                                    where a in S needs b in S
//
// The minimum cut with start(o) forced in and end(o) forced out is the cheapest state in which o
// runs. What that forces in or out through inf arcs (most of a training step) is merged with the
// source or the sink first. Max-flow by Dinic (1970), iterative.
#include "order/verify/cut.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace plimsoll::order::detail {
namespace {

using graph::Graph;
using graph::OpId;
using graph::StorageId;

constexpr std::int64_t kInfinite = std::int64_t{1} << 62;

class Network {
 public:
  explicit Network(std::size_t nodes) : first_(nodes, -1) {}

  void arc(std::int32_t from, std::int32_t to, std::int64_t capacity) {
    push(from, to, capacity);
    push(to, from, 0);
  }

  std::int64_t max_flow(std::int32_t source, std::int32_t sink) {
    std::int64_t flow = 0;
    while (level_nodes(source, sink)) {
      next_ = first_;
      while (const std::int64_t pushed = augment(source, sink)) flow += pushed;
    }
    return flow;
  }

 private:
  struct Arc {
    std::int32_t to;
    std::int32_t next;
    std::int64_t capacity;
  };

  void push(std::int32_t from, std::int32_t to, std::int64_t capacity) {
    arcs_.push_back({to, first_[static_cast<std::size_t>(from)], capacity});
    first_[static_cast<std::size_t>(from)] = static_cast<std::int32_t>(arcs_.size()) - 1;
  }
  Arc& at(std::int32_t arc) { return arcs_[static_cast<std::size_t>(arc)]; }

  bool level_nodes(std::int32_t source, std::int32_t sink) {
    level_.assign(first_.size(), -1);
    level_[static_cast<std::size_t>(source)] = 0;
    std::vector<std::int32_t> queue = {source};
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const auto node = static_cast<std::size_t>(queue[head]);
      for (std::int32_t a = first_[node]; a >= 0; a = at(a).next) {
        const auto to = static_cast<std::size_t>(at(a).to);
        if (at(a).capacity <= 0 || level_[to] >= 0) continue;
        level_[to] = level_[node] + 1;
        queue.push_back(at(a).to);
      }
    }
    return level_[static_cast<std::size_t>(sink)] >= 0;
  }

  // Finds one path along rising levels and fills it; 0 where there is none left.
  std::int64_t augment(std::int32_t source, std::int32_t sink) {
    std::vector<std::int32_t> path;
    std::int32_t node = source;
    while (node != sink) {
      std::int32_t& a = next_[static_cast<std::size_t>(node)];
      while (a >= 0 && !advances(node, a)) a = at(a).next;
      if (a >= 0) {
        path.push_back(a);
        node = at(a).to;
      } else if (path.empty()) {
        return 0;
      } else {
        // A dead end: step back and take the next arc there.
        const std::int32_t back = path.back();
        path.pop_back();
        node = at(back ^ 1).to;
        next_[static_cast<std::size_t>(node)] = at(back).next;
      }
    }
    std::int64_t amount = std::numeric_limits<std::int64_t>::max();
    for (const std::int32_t a : path) amount = std::min(amount, at(a).capacity);
    for (const std::int32_t a : path) {
      at(a).capacity -= amount;
      at(a ^ 1).capacity += amount;
    }
    return amount;
  }

  bool advances(std::int32_t node, std::int32_t arc) {
    return at(arc).capacity > 0 && level_[static_cast<std::size_t>(at(arc).to)] ==
                                       level_[static_cast<std::size_t>(node)] + 1;
  }

  std::vector<Arc> arcs_;
  std::vector<std::int32_t> first_, next_, level_;
};

struct Edge {
  std::int32_t from;
  std::int32_t to;
  std::int64_t capacity;
};

// The nodes that inf arcs join to `end`: those that it forces in (forwards), or that force it
// (backwards).
std::vector<std::uint8_t> joined_to(std::int32_t end, const std::vector<Edge>& edges,
                                    std::size_t nodes, bool forwards) {
  std::vector<std::vector<std::int32_t>> next(nodes);
  for (const Edge& edge : edges) {
    if (edge.capacity < kInfinite) continue;
    const auto [from, to] =
        forwards ? std::pair(edge.from, edge.to) : std::pair(edge.to, edge.from);
    next[static_cast<std::size_t>(from)].push_back(to);
  }
  std::vector<std::uint8_t> joined(nodes, 0);
  std::vector<std::int32_t> queue = {end};
  joined[static_cast<std::size_t>(end)] = 1;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    for (const std::int32_t node : next[static_cast<std::size_t>(queue[head])]) {
      if (std::exchange(joined[static_cast<std::size_t>(node)], 1) == 0) queue.push_back(node);
    }
  }
  return joined;
}

std::int64_t minimum_cut(const std::vector<Edge>& edges, std::size_t nodes, std::int32_t source,
                         std::int32_t sink) {
  const std::vector<std::uint8_t> in = joined_to(source, edges, nodes, true);
  const std::vector<std::uint8_t> out = joined_to(sink, edges, nodes, false);
  const auto merged = [&](std::int32_t node) {
    if (in[static_cast<std::size_t>(node)] != 0) return source;
    return out[static_cast<std::size_t>(node)] != 0 ? sink : node;
  };
  Network network(nodes);
  for (const Edge& edge : edges) {
    const std::int32_t from = merged(edge.from);
    const std::int32_t to = merged(edge.to);
    // Arcs back into the source or out of the sink carry nothing.
    if (from != to && to != source && from != sink) network.arc(from, to, edge.capacity);
  }
  return network.max_flow(source, sink);
}

std::int32_t start_of(OpId o) { return 2 * o.value(); }
std::int32_t end_of(OpId o) { return 2 * o.value() + 1; }

}  // namespace

std::int64_t cheapest_state_running(const Graph& graph, OpId o) {
  const auto ops = static_cast<std::int32_t>(graph.op_count());
  const auto storages = static_cast<std::int32_t>(graph.storage_count());
  // Nodes: two a op, two a storage (its births together, its death), source, sink.
  const std::int32_t births_begin = 2 * ops;
  const std::int32_t dead_begin = births_begin + storages;
  const std::int32_t source = dead_begin + storages;
  const std::int32_t sink = source + 1;
  std::vector<Edge> edges;
  const auto arc = [&](std::int32_t from, std::int32_t to, std::int64_t capacity) {
    edges.push_back({from, to, capacity});
  };
  for (std::int32_t i = 0; i < ops; ++i) {
    const OpId op(i);
    arc(end_of(op), start_of(op), kInfinite);
    for (const OpId before : graph.predecessors(op)) arc(start_of(op), end_of(before), kInfinite);
    if (graph.workspace_bytes(op) > 0) arc(start_of(op), end_of(op), graph.workspace_bytes(op));
  }
  for (std::int32_t i = 0; i < storages; ++i) {
    const StorageId s(i);
    // Live from the start but never used: dead at once, unless it stays to the end.
    if (graph.touchers(s).empty() && !graph.live_at_end(s)) continue;
    const std::int32_t born = graph.live_at_start(s) ? source : births_begin + i;
    const std::int32_t dead = graph.live_at_end(s) ? sink : dead_begin + i;
    for (const OpId birth : graph.births(s)) arc(start_of(birth), born, kInfinite);
    arc(born, dead, graph.size_bytes(s));
    if (graph.live_at_end(s)) continue;
    for (const OpId last : graph.touchers(s)) {
      const bool overwrites = graph.inplace_storage(last) == s;
      arc(dead, overwrites ? start_of(last) : end_of(last), kInfinite);
    }
  }
  arc(source, start_of(o), kInfinite);
  arc(end_of(o), sink, kInfinite);
  return minimum_cut(edges, static_cast<std::size_t>(sink) + 1, source, sink);
}

}  // namespace plimsoll::order::detail
