// SPDX-License-Identifier: Apache-2.0
// GraphBuilder::build(): from the specs to lifetimes and edges.
#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/graph/builder.h"

namespace plimsoll::graph {
namespace {

using Place = InvalidGraph::Place;

// Makes rows from (row, item) pairs given by `visit`, called twice: to count and to fill.
template <typename T, typename Visit>
Rows<T> make_rows(std::size_t row_count, const Visit& visit) {
  Rows<T> rows;
  rows.begin.assign(row_count + 1, 0);
  visit([&rows](std::size_t row, T) { ++rows.begin[row + 1]; });
  for (std::size_t i = 0; i < row_count; ++i) rows.begin[i + 1] += rows.begin[i];
  rows.items.resize(rows.begin.back());
  std::vector<std::uint32_t> next(rows.begin.begin(), rows.begin.end() - 1);
  visit([&rows, &next](std::size_t row, T item) { rows.items[next[row]++] = item; });
  return rows;
}

}  // namespace

Graph GraphBuilder::build() {
  derive_after();
  derive_consumers();
  derive_storages();
  derive_touched();
  check_versions();
  check_inplace_results();
  const auto op_count = static_cast<std::int32_t>(graph_.op_count());
  for (std::int32_t i = 0; i < op_count; ++i) {
    const OpId o(i);
    for (const ValueId v : graph_.operands(o)) {
      if (graph_.producer(v).valid())
        edges_.push_back({graph_.producer(v).value(), i, EdgeKind::kData});
    }
    for (const OpId before : graph_.after_[o.index()])
      edges_.push_back({before.value(), i, EdgeKind::kOrder});
  }
  add_version_edges();
  compress_edges();
  find_program_order();
  // The chains follow the order just found, so they cannot close a cycle and the order stays
  // valid.
  const std::size_t before_chains = edges_.size();
  add_chain_edges(kRandom);
  add_chain_edges(kSideEffect);
  if (edges_.size() != before_chains) compress_edges();
  Graph result = std::move(graph_);
  *this = GraphBuilder();
  return result;
}

void GraphBuilder::derive_after() {
  const auto count = static_cast<std::int32_t>(graph_.op_count());
  for (const auto& [op, before] : after_) {
    if (!op.valid() || op.value() >= count || !before.valid() || before.value() >= count)
      throw InvalidGraph(
          Place::kOp, op.valid() ? op.index() : 0,
          fmt::format("comes after op {}, but there are {} ops", before.value(), count));
  }
  graph_.after_ = make_rows<OpId>(graph_.op_count(), [this](const auto& emit) {
    for (const auto& [op, before] : after_) emit(op.index(), before);
  });
}

void GraphBuilder::derive_consumers() {
  graph_.consumers_ = make_rows<OpId>(graph_.value_count(), [this](const auto& emit) {
    std::vector<std::int32_t> last_reader(graph_.value_count(), -1);
    for (std::size_t i = 0; i < graph_.op_count(); ++i) {
      for (const ValueId v : graph_.operands_[i]) {
        // x + x reads x once.
        if (last_reader[v.index()] == static_cast<std::int32_t>(i)) continue;
        last_reader[v.index()] = static_cast<std::int32_t>(i);
        emit(v.index(), OpId(i));
      }
    }
  });
}

void GraphBuilder::derive_storages() {
  graph_.storage_values_ = make_rows<ValueId>(graph_.storage_count(), [this](const auto& emit) {
    for (std::size_t i = 0; i < graph_.value_count(); ++i)
      emit(graph_.value_storage_[i].index(), ValueId(i));
  });
  for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
    const StorageId s(i);
    if (graph_.values(s).empty())
      throw InvalidGraph(Place::kStorage, i, "holds no value; leave it out");
    for (const ValueId v : graph_.values(s)) {
      if (!graph_.producer(v).valid() && !graph_.overwrites(v).valid())
        graph_.storage_flags_[i] |= Graph::kStartBit;
    }
  }
  std::vector<OpId> row;
  for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
    row.clear();
    if (!graph_.live_at_start(StorageId(i))) {
      for (const ValueId v : graph_.values(StorageId(i))) {
        if (!graph_.overwrites(v).valid()) row.push_back(graph_.producer(v));
      }
    }
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    graph_.births_.items.insert(graph_.births_.items.end(), row.begin(), row.end());
    graph_.births_.close_row();
  }
}

void GraphBuilder::check_versions() const {
  for (std::size_t i = 0; i < graph_.value_count(); ++i) {
    const ValueId v(i);
    if (graph_.overwrites(v).valid() && !graph_.producer(v).valid())
      throw InvalidGraph(
          Place::kValue, i,
          fmt::format("overwrites value {}, but no op writes it", graph_.overwrites(v).value()));
  }
  for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
    if (graph_.unordered_writes(StorageId(i))) continue;
    ValueId first;
    for (const ValueId v : graph_.values(StorageId(i))) {
      if (graph_.overwrites(v).valid()) continue;
      if (first.valid())
        throw InvalidGraph(Place::kValue, v.index(),
                           fmt::format("shares a storage with value {}, but does not say which "
                                       "version it overwrites",
                                       first.value()));
      first = v;
    }
    // Versions all overwrite one another in a ring.
    if (!first.valid())
      throw InvalidGraph(Place::kStorage, i, "none of its values is the first version");
  }
}

void GraphBuilder::check_inplace_results() const {
  for (std::size_t i = 0; i < graph_.op_count(); ++i) {
    const ValueId result = graph_.inplace_result_[i];
    if (!result.valid()) continue;
    const auto births = graph_.births(graph_.storage(result));
    if (births.size() != 1 || births[0] != OpId(i))
      throw InvalidGraph(Place::kOp, i,
                         fmt::format("may write value {} over an operand only if it alone gives "
                                     "birth to that value's storage",
                                     result.value()));
  }
}

void GraphBuilder::derive_touched() {
  std::vector<StorageId> row;
  graph_.touched_.begin.reserve(graph_.op_count() + 1);
  for (std::size_t i = 0; i < graph_.op_count(); ++i) {
    row.clear();
    for (const ValueId v : graph_.operands_[i]) row.push_back(graph_.storage(v));
    for (const ValueId v : graph_.results_[i]) row.push_back(graph_.storage(v));
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    graph_.touched_.items.insert(graph_.touched_.items.end(), row.begin(), row.end());
    graph_.touched_.close_row();
  }
  graph_.touchers_ = make_rows<OpId>(graph_.storage_count(), [this](const auto& emit) {
    for (std::size_t i = 0; i < graph_.op_count(); ++i) {
      for (const StorageId s : graph_.touched_[i]) emit(s.index(), OpId(i));
    }
  });
}

void GraphBuilder::add_version_edges() {
  for (std::size_t i = 0; i < graph_.value_count(); ++i) {
    const ValueId old = graph_.value_overwrites_[i];
    if (!old.valid()) continue;
    const std::int32_t writer = graph_.value_producer_[i].value();
    if (graph_.producer(old).valid())
      edges_.push_back({graph_.producer(old).value(), writer, EdgeKind::kOutput});
    for (const OpId reader : graph_.consumers(old)) {
      if (reader.value() != writer) edges_.push_back({reader.value(), writer, EdgeKind::kAnti});
    }
  }
}

void GraphBuilder::add_chain_edges(std::uint8_t flag) {
  OpId last;
  for (const OpId o : graph_.program_order_) {
    if ((graph_.op_flags_[o.index()] & flag) == 0) continue;
    if (last.valid()) edges_.push_back({last.value(), o.value(), EdgeKind::kOrder});
    last = o;
  }
}

// Sorts the edges by (to, from, kind), keeps each pair once with its first kind, and lays them out
// as rows both ways.
void GraphBuilder::compress_edges() {
  std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.to, a.from, a.kind) < std::tie(b.to, b.from, b.kind);
  });
  edges_.erase(
      std::unique(edges_.begin(), edges_.end(),
                  [](const Edge& a, const Edge& b) { return a.to == b.to && a.from == b.from; }),
      edges_.end());
  for (const Edge& edge : edges_) {
    if (edge.from == edge.to)
      throw InvalidGraph(
          Place::kOp, static_cast<std::size_t>(edge.to),
          fmt::format("a cycle: '{}' depends on itself", graph_.name(OpId(edge.to))));
  }
  graph_.predecessors_ = make_rows<OpId>(graph_.op_count(), [this](const auto& emit) {
    for (const Edge& edge : edges_) emit(static_cast<std::size_t>(edge.to), OpId(edge.from));
  });
  graph_.successors_ = make_rows<OpId>(graph_.op_count(), [this](const auto& emit) {
    for (const Edge& edge : edges_) emit(static_cast<std::size_t>(edge.from), OpId(edge.to));
  });
  graph_.edge_kinds_.clear();
  graph_.edge_kinds_.reserve(edges_.size());
  for (const Edge& edge : edges_) graph_.edge_kinds_.push_back(edge.kind);
}

void GraphBuilder::find_program_order() {
  const std::size_t count = graph_.op_count();
  std::vector<std::int32_t> waiting(count);
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i) {
    waiting[i] = static_cast<std::int32_t>(graph_.predecessors(OpId(i)).size());
    if (waiting[i] == 0) ready.push(static_cast<std::int32_t>(i));
  }
  // The smallest ready id first: gives 0, 1, 2, ... where that respects every edge.
  graph_.program_order_.reserve(count);
  while (!ready.empty()) {
    const OpId o(ready.top());
    ready.pop();
    graph_.program_order_.push_back(o);
    for (const OpId next : graph_.successors(o)) {
      if (--waiting[next.index()] == 0) ready.push(next.value());
    }
  }
  if (graph_.program_order_.size() == count) return;
  std::size_t first = 0;
  while (waiting[first] == 0) ++first;
  throw InvalidGraph(Place::kOp, first, fmt::format("a cycle: {}", name_cycle(waiting)));
}

// Every op that still waits has a predecessor that still waits; going back along those meets
// itself.
std::string GraphBuilder::name_cycle(const std::vector<std::int32_t>& waiting) const {
  std::vector<std::int32_t> position(waiting.size(), -1);
  std::vector<OpId> path;
  std::size_t at = 0;
  while (waiting[at] == 0) ++at;
  while (position[at] < 0) {
    position[at] = static_cast<std::int32_t>(path.size());
    path.emplace_back(at);
    for (const OpId p : graph_.predecessors(OpId(at))) {
      if (waiting[p.index()] == 0) continue;
      at = p.index();
      break;
    }
  }
  path.erase(path.begin(), path.begin() + position[at]);
  std::reverse(path.begin(), path.end());
  constexpr std::size_t kMaxNamed = 12;
  std::string text;
  for (std::size_t i = 0; i < path.size() && i < kMaxNamed; ++i)
    text += fmt::format("op {} ('{}') -> ", path[i].value(), graph_.name(path[i]));
  if (path.size() > kMaxNamed) text += fmt::format("{} more ops -> ", path.size() - kMaxNamed);
  return text + fmt::format("op {}", path[0].value());
}

}  // namespace plimsoll::graph
