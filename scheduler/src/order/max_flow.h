// SPDX-License-Identifier: Apache-2.0
// Maximum flow from one source to one sink.
//
// Noun: MaxFlow. A flow that was ended early is a valid, smaller one.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace plimsoll::order {

// Dinic's algorithm on adjacency arrays, without recursion. Single owner. Deterministic.
// Source: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
// estimation" (1970).
class MaxFlow {
 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

  MaxFlow() : nodes_(2) {}
  // Back to two nodes and no arc; keeps its memory.
  void clear() {
    nodes_ = 2;
    added_.clear();
    value_ = 0;
  }
  std::int32_t source() const { return 0; }
  std::int32_t sink() const { return 1; }
  std::int32_t add_node() { return nodes_++; }
  void add_arc(std::int32_t from, std::int32_t to, std::int64_t capacity);

  // Pushes flow until none is left to push, the value reaches `enough` (negative: never), or `stop`
  // says so. Returns whether the flow is a maximum one.
  bool run(std::int64_t enough, const std::function<bool()>& stop);
  std::int64_t value() const { return value_; }
  // After a finished run: whether the node is reached from the source past the minimum cut.
  bool on_source_side(std::int32_t node) const { return distance_[node] >= 0; }

 private:
  struct Arc {
    std::int32_t to = 0;
    std::int32_t reverse = 0;
    std::int64_t room = 0;
  };
  void index_arcs();
  bool measure_distances();
  std::int64_t push_path();

  std::int32_t nodes_;
  std::vector<Arc> added_;                  // as given; `reverse` holds where it comes from
  std::vector<Arc> arcs_;                   // by tail
  std::vector<std::int32_t> first_;         // per node, into arcs_
  std::vector<std::int32_t> current_;       // the next arc to try
  std::vector<std::int32_t> distance_;      // from the source; -1: not reached
  std::vector<std::int32_t> next_, queue_;  // scratch
  std::vector<std::int32_t> path_;          // arcs of the path that push_path follows
  std::int64_t value_ = 0;
};

}  // namespace plimsoll::order
