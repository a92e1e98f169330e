// SPDX-License-Identifier: Apache-2.0
// The graph of a step: what every reader makes and every solver, planner and writer takes.
//
// Nouns: Graph (immutable, made by GraphBuilder), storage (bytes), value (one version of what lies
// in a storage), op.
//
//     storage s   |-- value v0 --|-- value v1 (overwrites v0) --|      ops that touch s:
//                 ^ op a writes  ^ op c overwrites v0           ^      a, b, c, d
//                        op b reads v0      op d reads v1              d is the last: s is freed
//
// Lifetimes (the memory model, see memory.h for the one function that adds it up): a storage is
// born with the first of its birth ops, or is live from the start where one of its values has no
// producer; it is freed after the last op that touches it, or never where it is live at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/graph/columns.h"
#include "plimsoll/graph/kinds.h"

namespace plimsoll::graph {

// An immutable, valid graph. Every accessor is O(1) and takes an id below the matching count.
// Memory: about 300 bytes an op with three operands, plus names. Threads: safe, it never changes.
class Graph {
 public:
  Graph() = default;  // the empty graph: no op, peak 0
  // Takes columns as they are. GraphBuilder, which checks them, is the one to make them.
  explicit Graph(GraphColumns columns) : columns_(std::move(columns)) {}

  std::size_t op_count() const { return columns_.op_kind.size(); }
  std::size_t value_count() const { return columns_.value_storage.size(); }
  std::size_t storage_count() const { return columns_.storage_bytes.size(); }

  // Storages. Sizes are >= 0; the sum of all sizes and workspaces is below 2^62, so no sum of
  // them can overflow.
  std::int64_t size_bytes(StorageId s) const { return columns_.storage_bytes[s.index()]; }
  bool live_at_start(StorageId s) const {
    return (columns_.storage_flags[s.index()] & GraphColumns::kStartBit) != 0;
  }
  bool live_at_end(StorageId s) const {
    return (columns_.storage_flags[s.index()] & GraphColumns::kEndBit) != 0;
  }
  // Whether its values are partial sums or disjoint slices whose writers may go in any order; the
  // storage is then born with whichever comes first.
  bool unordered_writes(StorageId s) const {
    return (columns_.storage_flags[s.index()] & GraphColumns::kUnorderedBit) != 0;
  }
  // The ops of which the first to run gives birth to `s`: none where it is live from the start,
  // one in general, several where writes are unordered. Ascending.
  std::span<const OpId> births(StorageId s) const { return columns_.births[s.index()]; }
  // The ops that read or write any value of `s`, each once, ascending.
  std::span<const OpId> touchers(StorageId s) const { return columns_.touchers[s.index()]; }
  std::span<const ValueId> values(StorageId s) const { return columns_.storage_values[s.index()]; }

  // Values.
  StorageId storage(ValueId v) const { return columns_.value_storage[v.index()]; }
  std::int64_t size_bytes(ValueId v) const { return columns_.value_bytes[v.index()]; }
  ValueKind kind(ValueId v) const { return columns_.value_kind[v.index()]; }
  DataType data_type(ValueId v) const { return columns_.value_type[v.index()]; }
  // Empty for a scalar and for an unknown shape; has_shape() tells them apart.
  std::span<const std::int64_t> shape(ValueId v) const { return columns_.shapes[v.index()]; }
  bool has_shape(ValueId v) const { return columns_.value_has_shape[v.index()] != 0; }
  // Invalid: from the start.
  OpId producer(ValueId v) const { return columns_.value_producer[v.index()]; }
  // Invalid: none.
  ValueId overwrites(ValueId v) const { return columns_.value_overwrites[v.index()]; }
  // Ascending.
  std::span<const OpId> consumers(ValueId v) const { return columns_.consumers[v.index()]; }
  std::string_view name(ValueId v) const { return columns_.value_names[v.index()]; }

  // Ops.
  std::span<const ValueId> operands(OpId o) const { return columns_.operands[o.index()]; }
  std::span<const ValueId> results(OpId o) const { return columns_.results[o.index()]; }
  // The distinct storages of its operands and results, ascending.
  std::span<const StorageId> touched(OpId o) const { return columns_.touched[o.index()]; }
  // The storage this op may write inplace_result(o) over if it is the storage's last toucher and
  // the storage is not live at the end; equal in size, itself read by `o`. Invalid: none.
  StorageId inplace_storage(OpId o) const { return columns_.inplace_storage[o.index()]; }
  ValueId inplace_operand(OpId o) const { return columns_.inplace_operand[o.index()]; }
  ValueId inplace_result(OpId o) const { return columns_.inplace_result[o.index()]; }
  std::int64_t workspace_bytes(OpId o) const { return columns_.workspace_bytes[o.index()]; }
  double cost_ns(OpId o) const { return columns_.cost_ns[o.index()]; }
  Phase phase(OpId o) const { return columns_.phase[o.index()]; }
  std::uint8_t flags(OpId o) const { return columns_.op_flags[o.index()]; }
  bool has_flag(OpId o, OpFlag flag) const { return (flags(o) & flag) != 0; }
  std::string_view kind(OpId o) const { return columns_.kinds[columns_.op_kind[o.index()]]; }
  // The kind where it was given no name.
  std::string_view name(OpId o) const { return columns_.op_name(o); }
  // An attribute such as "strides" or "group"; empty where it has none of that name.
  std::span<const std::int64_t> attribute(OpId o, std::string_view key) const;
  std::vector<std::pair<std::string_view, std::span<const std::int64_t>>> attributes(OpId o) const;

  // Every dependency (data, anti, output, order), each pair once, ascending. Any permutation that
  // respects them gives the same bits (up to the order of summation in unordered storages).
  std::span<const OpId> predecessors(OpId o) const { return columns_.predecessors[o.index()]; }
  std::span<const EdgeKind> predecessor_kinds(OpId o) const {
    return {columns_.edge_kinds.data() + columns_.predecessors.begin[o.index()],
            predecessors(o).size()};
  }
  std::span<const OpId> successors(OpId o) const { return columns_.successors[o.index()]; }
  std::size_t edge_count() const { return columns_.edge_kinds.size(); }
  // The order in which the ops were given where that respects every edge; else the smallest
  // topological order by id.
  std::span<const OpId> program_order() const { return columns_.program_order; }
  // The OpSpec::after edges as given, for writers.
  std::span<const OpId> given_after(OpId o) const { return columns_.after[o.index()]; }

  // Bytes of host memory this graph takes.
  std::size_t footprint_bytes() const;

 private:
  GraphColumns columns_;
};

}  // namespace plimsoll::graph
