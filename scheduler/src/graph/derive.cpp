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
  const auto ops = static_cast<std::int32_t>(op_count());
  for (std::int32_t i = 0; i < ops; ++i) {
    const OpId o(i);
    for (const ValueId v : columns_.operands[o.index()]) {
      if (columns_.value_producer[v.index()].valid())
        edges_.push_back({columns_.value_producer[v.index()].value(), i, EdgeKind::kData});
    }
    for (const OpId before : columns_.after[o.index()])
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
  Graph result(std::move(columns_));
  *this = GraphBuilder();
  return result;
}

void GraphBuilder::derive_after() {
  const auto count = static_cast<std::int32_t>(op_count());
  for (const auto& [op, before] : after_) {
    if (!op.valid() || op.value() >= count || !before.valid() || before.value() >= count)
      throw InvalidGraph(
          Place::kOp, op.valid() ? op.index() : 0,
          fmt::format("comes after op {}, but there are {} ops", before.value(), count));
  }
  columns_.after = make_rows<OpId>(op_count(), [this](const auto& emit) {
    for (const auto& [op, before] : after_) emit(op.index(), before);
  });
}

void GraphBuilder::derive_consumers() {
  columns_.consumers = make_rows<OpId>(value_count(), [this](const auto& emit) {
    std::vector<std::int32_t> last_reader(value_count(), -1);
    for (std::size_t i = 0; i < op_count(); ++i) {
      for (const ValueId v : columns_.operands[i]) {
        // x + x reads x once.
        if (last_reader[v.index()] == static_cast<std::int32_t>(i)) continue;
        last_reader[v.index()] = static_cast<std::int32_t>(i);
        emit(v.index(), OpId(i));
      }
    }
  });
}

void GraphBuilder::derive_storages() {
  columns_.storage_values = make_rows<ValueId>(storage_count(), [this](const auto& emit) {
    for (std::size_t i = 0; i < value_count(); ++i)
      emit(columns_.value_storage[i].index(), ValueId(i));
  });
  for (std::size_t i = 0; i < storage_count(); ++i) {
    const StorageId s(i);
    if (columns_.storage_values[s.index()].empty())
      throw InvalidGraph(Place::kStorage, i, "holds no value; leave it out");
    for (const ValueId v : columns_.storage_values[s.index()]) {
      if (!columns_.value_producer[v.index()].valid() &&
          !columns_.value_overwrites[v.index()].valid())
        columns_.storage_flags[i] |= GraphColumns::kStartBit;
    }
  }
  std::vector<OpId> row;
  for (std::size_t i = 0; i < storage_count(); ++i) {
    row.clear();
    if ((columns_.storage_flags[i] & GraphColumns::kStartBit) == 0) {
      for (const ValueId v : columns_.storage_values[i]) {
        if (!columns_.value_overwrites[v.index()].valid())
          row.push_back(columns_.value_producer[v.index()]);
      }
    }
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    columns_.births.items.insert(columns_.births.items.end(), row.begin(), row.end());
    columns_.births.close_row();
  }
}

void GraphBuilder::check_versions() const {
  for (std::size_t i = 0; i < value_count(); ++i) {
    const ValueId v(i);
    if (columns_.value_overwrites[v.index()].valid() && !columns_.value_producer[v.index()].valid())
      throw InvalidGraph(Place::kValue, i,
                         fmt::format("overwrites value {}, but no op writes it",
                                     columns_.value_overwrites[v.index()].value()));
  }
  for (std::size_t i = 0; i < storage_count(); ++i) {
    if (has_unordered_writes(StorageId(i))) continue;
    ValueId first;
    for (const ValueId v : columns_.storage_values[i]) {
      if (columns_.value_overwrites[v.index()].valid()) continue;
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
  for (std::size_t i = 0; i < op_count(); ++i) {
    const ValueId result = columns_.inplace_result[i];
    if (!result.valid()) continue;
    const auto births = columns_.births[storage(result).index()];
    if (births.size() != 1 || births[0] != OpId(i))
      throw InvalidGraph(Place::kOp, i,
                         fmt::format("may write value {} over an operand only if it alone gives "
                                     "birth to that value's storage",
                                     result.value()));
  }
}

void GraphBuilder::derive_touched() {
  std::vector<StorageId> row;
  columns_.touched.begin.reserve(op_count() + 1);
  for (std::size_t i = 0; i < op_count(); ++i) {
    row.clear();
    for (const ValueId v : columns_.operands[i]) row.push_back(storage(v));
    for (const ValueId v : columns_.results[i]) row.push_back(storage(v));
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    columns_.touched.items.insert(columns_.touched.items.end(), row.begin(), row.end());
    columns_.touched.close_row();
  }
  columns_.touchers = make_rows<OpId>(storage_count(), [this](const auto& emit) {
    for (std::size_t i = 0; i < op_count(); ++i) {
      for (const StorageId s : columns_.touched[i]) emit(s.index(), OpId(i));
    }
  });
}

void GraphBuilder::add_version_edges() {
  for (std::size_t i = 0; i < value_count(); ++i) {
    const ValueId old = columns_.value_overwrites[i];
    if (!old.valid()) continue;
    const std::int32_t writer = columns_.value_producer[i].value();
    if (columns_.value_producer[old.index()].valid())
      edges_.push_back({columns_.value_producer[old.index()].value(), writer, EdgeKind::kOutput});
    for (const OpId reader : columns_.consumers[old.index()]) {
      if (reader.value() != writer) edges_.push_back({reader.value(), writer, EdgeKind::kAnti});
    }
  }
}

void GraphBuilder::add_chain_edges(std::uint8_t flag) {
  OpId last;
  for (const OpId o : columns_.program_order) {
    if ((columns_.op_flags[o.index()] & flag) == 0) continue;
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
          fmt::format("a cycle: '{}' depends on itself", columns_.op_name(OpId(edge.to))));
  }
  columns_.predecessors = make_rows<OpId>(op_count(), [this](const auto& emit) {
    for (const Edge& edge : edges_) emit(static_cast<std::size_t>(edge.to), OpId(edge.from));
  });
  columns_.successors = make_rows<OpId>(op_count(), [this](const auto& emit) {
    for (const Edge& edge : edges_) emit(static_cast<std::size_t>(edge.from), OpId(edge.to));
  });
  columns_.edge_kinds.clear();
  columns_.edge_kinds.reserve(edges_.size());
  for (const Edge& edge : edges_) columns_.edge_kinds.push_back(edge.kind);
}

void GraphBuilder::find_program_order() {
  const std::size_t count = op_count();
  std::vector<std::int32_t> waiting(count);
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i) {
    waiting[i] = static_cast<std::int32_t>(columns_.predecessors[i].size());
    if (waiting[i] == 0) ready.push(static_cast<std::int32_t>(i));
  }
  // The smallest ready id first: gives 0, 1, 2, ... where that respects every edge.
  columns_.program_order.reserve(count);
  while (!ready.empty()) {
    const OpId o(ready.top());
    ready.pop();
    columns_.program_order.push_back(o);
    for (const OpId next : columns_.successors[o.index()]) {
      if (--waiting[next.index()] == 0) ready.push(next.value());
    }
  }
  if (columns_.program_order.size() == count) return;
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
    for (const OpId p : columns_.predecessors[at]) {
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
    text += fmt::format("op {} ('{}') -> ", path[i].value(), columns_.op_name(path[i]));
  if (path.size() > kMaxNamed) text += fmt::format("{} more ops -> ", path.size() - kMaxNamed);
  return text + fmt::format("op {}", path[0].value());
}

}  // namespace plimsoll::graph
