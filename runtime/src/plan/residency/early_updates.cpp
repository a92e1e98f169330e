// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "plimsoll/plan/residency.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;

namespace {

// Which optimizer ops belong together: those that write a storage another of them touches.
class UpdateGroups {
 public:
  explicit UpdateGroups(const graph::Graph& graph) : parent_(graph.op_count()) {
    std::iota(parent_.begin(), parent_.end(), 0U);
    for (std::size_t i = 0; i < graph.storage_count(); ++i) {
      const StorageId s(i);
      std::size_t first = graph.op_count();
      bool is_written = false;
      for (const OpId o : graph.touchers(s))
        for (const graph::ValueId v : graph.results(o))
          is_written =
              is_written || (graph.storage(v) == s && graph.phase(o) == graph::Phase::kOptimizer);
      if (!is_written) continue;
      for (const OpId o : graph.touchers(s)) {
        if (graph.phase(o) != graph::Phase::kOptimizer) continue;
        if (first == graph.op_count()) first = o.index();
        parent_[root(o.index())] = root(first);
      }
    }
  }
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }

 private:
  std::vector<std::size_t> parent_;
};

}  // namespace

std::vector<OpId> early_update_order(const graph::Graph& graph) {
  const auto program = graph.program_order();
  std::vector<std::int64_t> position(graph.op_count());
  for (std::size_t i = 0; i < program.size(); ++i)
    position[program[i].index()] = static_cast<std::int64_t>(i);
  UpdateGroups groups(graph);
  // The last op outside of its group that anything in a group needs; groups inherit from groups.
  std::vector<std::int64_t> trigger(graph.op_count(), -1);
  for (const OpId o : program) {
    if (graph.phase(o) != graph::Phase::kOptimizer) continue;
    std::int64_t& mine = trigger[groups.root(o.index())];
    for (const OpId before : graph.predecessors(o)) {
      const bool update = graph.phase(before) == graph::Phase::kOptimizer;
      const std::size_t other = groups.root(before.index());
      if (update && other != groups.root(o.index())) mine = std::max(mine, trigger[other]);
      if (!update) mine = std::max(mine, position[before.index()]);
    }
  }
  struct Key {
    std::int64_t at;
    std::int64_t group;
    std::int64_t position;
  };
  std::vector<Key> keys(graph.op_count());
  std::vector<std::int64_t> first_of(graph.op_count(), -1);
  for (const OpId o : program) {
    const std::int64_t at = position[o.index()];
    if (graph.phase(o) != graph::Phase::kOptimizer) {
      keys[o.index()] = {at, -1, at};
      continue;
    }
    const std::size_t root = groups.root(o.index());
    if (first_of[root] < 0) first_of[root] = at;
    keys[o.index()] = {trigger[root], first_of[root], at};
  }
  std::vector<OpId> order(program.begin(), program.end());
  std::stable_sort(order.begin(), order.end(), [&](OpId a, OpId b) {
    const Key& x = keys[a.index()];
    const Key& y = keys[b.index()];
    if (x.at != y.at) return x.at < y.at;
    if (x.group != y.group) return x.group < y.group;
    return x.position < y.position;
  });
  // Updates that wait for one another across groups, or backward ops that read what an update
  // wrote: then the program's order stands.
  std::vector<std::int64_t> place(graph.op_count());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[order[i].index()] = static_cast<std::int64_t>(i);
  for (const OpId o : order)
    for (const OpId before : graph.predecessors(o))
      if (place[before.index()] > place[o.index()]) return {program.begin(), program.end()};
  return order;
}

}  // namespace plimsoll::plan
