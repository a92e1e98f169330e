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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/base/id.h"

namespace plimsoll::graph {

using StorageId = Id<struct StorageTag>;
using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;

enum class ValueKind : std::uint8_t {
  kActivation,
  kInput,
  kParameter,
  kGradient,
  kOptimizerState,
  kOutput,
};
enum class Phase : std::uint8_t { kForward, kLoss, kBackward, kOptimizer };
enum class DataType : std::uint8_t {
  kUnknown,
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};
// Why one op has to wait for another. Where several reasons hold, the first in this order stands.
enum class EdgeKind : std::uint8_t {
  kData,    // reads what the other writes
  kAnti,    // overwrites what the other reads
  kOutput,  // overwrites what the other wrote
  kOrder,   // asked for: OpSpec::after, random ops, ops with side effects
};
// Bits of Graph::flags.
enum OpFlag : std::uint8_t {
  kNoFlags = 0,
  kRandom = 1,             // draws from a generator: random ops keep their mutual order
  kHostSynchronising = 2,  // makes the host wait for the device
  kRecomputable = 4,       // running it again gives the same bits
  kSideEffect = 8,         // changes state outside of the graph: such ops keep their mutual order
};

// Names as they stand in files, and back; parse functions return false for an unknown name.
std::string_view value_kind_name(ValueKind kind);
std::string_view phase_name(Phase phase);
std::string_view data_type_name(DataType type);
std::string_view edge_kind_name(EdgeKind kind);
bool parse_value_kind(std::string_view name, ValueKind& kind);
bool parse_phase(std::string_view name, Phase& phase);
bool parse_data_type(std::string_view name, DataType& type);
// Bytes of one element; 0 for kUnknown.
int data_type_bytes(DataType type);

// Compressed rows: row i is items [begin[i], begin[i + 1]).
template <typename T>
struct Rows {
  std::vector<std::uint32_t> begin = {0};
  std::vector<T> items;
  std::span<const T> operator[](std::size_t row) const {
    return {items.data() + begin[row], begin[row + 1] - begin[row]};
  }
  std::size_t size() const { return begin.size() - 1; }
  void close_row() { begin.push_back(static_cast<std::uint32_t>(items.size())); }
};

// Strings laid end to end, without a heap block each.
class NamePool {
 public:
  void add(std::string_view text) {
    text_ += text;
    end_.push_back(static_cast<std::uint32_t>(text_.size()));
  }
  std::string_view operator[](std::size_t i) const {
    const std::uint32_t begin = i == 0 ? 0 : end_[i - 1];
    return std::string_view(text_).substr(begin, end_[i] - begin);
  }
  std::size_t text_bytes() const { return text_.size(); }

 private:
  std::string text_;
  std::vector<std::uint32_t> end_;
};

// An immutable, valid graph. Every accessor is O(1) and takes an id below the matching count.
// Memory: about 300 bytes an op with three operands, plus names. Threads: safe, it never changes.
class Graph {
 public:
  Graph() = default;  // the empty graph: no op, peak 0

  std::size_t op_count() const { return op_kind_.size(); }
  std::size_t value_count() const { return value_storage_.size(); }
  std::size_t storage_count() const { return storage_bytes_.size(); }

  // Storages. Sizes are >= 0; the sum of all sizes and workspaces is below 2^62, so no sum of
  // them can overflow.
  std::int64_t size_bytes(StorageId s) const { return storage_bytes_[s.index()]; }
  bool live_at_start(StorageId s) const { return (storage_flags_[s.index()] & kStartBit) != 0; }
  bool live_at_end(StorageId s) const { return (storage_flags_[s.index()] & kEndBit) != 0; }
  // Whether its values are partial sums or disjoint slices whose writers may go in any order; the
  // storage is then born with whichever comes first.
  bool unordered_writes(StorageId s) const {
    return (storage_flags_[s.index()] & kUnorderedBit) != 0;
  }
  // The ops of which the first to run gives birth to `s`: none where it is live from the start,
  // one in general, several where writes are unordered. Ascending.
  std::span<const OpId> births(StorageId s) const { return births_[s.index()]; }
  // The ops that read or write any value of `s`, each once, ascending.
  std::span<const OpId> touchers(StorageId s) const { return touchers_[s.index()]; }
  std::span<const ValueId> values(StorageId s) const { return storage_values_[s.index()]; }

  // Values.
  StorageId storage(ValueId v) const { return value_storage_[v.index()]; }
  std::int64_t size_bytes(ValueId v) const { return value_bytes_[v.index()]; }
  ValueKind kind(ValueId v) const { return value_kind_[v.index()]; }
  DataType data_type(ValueId v) const { return value_type_[v.index()]; }
  // Empty for a scalar and for an unknown shape; has_shape() tells them apart.
  std::span<const std::int64_t> shape(ValueId v) const { return shapes_[v.index()]; }
  bool has_shape(ValueId v) const { return value_has_shape_[v.index()] != 0; }
  OpId producer(ValueId v) const { return value_producer_[v.index()]; }  // invalid: from the start
  ValueId overwrites(ValueId v) const { return value_overwrites_[v.index()]; }  // invalid: none
  std::span<const OpId> consumers(ValueId v) const { return consumers_[v.index()]; }  // ascending
  std::string_view name(ValueId v) const { return value_names_[v.index()]; }

  // Ops.
  std::span<const ValueId> operands(OpId o) const { return operands_[o.index()]; }
  std::span<const ValueId> results(OpId o) const { return results_[o.index()]; }
  // The distinct storages of its operands and results, ascending.
  std::span<const StorageId> touched(OpId o) const { return touched_[o.index()]; }
  // The storage this op may write inplace_result(o) over if it is the storage's last toucher and
  // the storage is not live at the end; equal in size, itself read by `o`. Invalid: none.
  StorageId inplace_storage(OpId o) const { return inplace_storage_[o.index()]; }
  ValueId inplace_operand(OpId o) const { return inplace_operand_[o.index()]; }
  ValueId inplace_result(OpId o) const { return inplace_result_[o.index()]; }
  std::int64_t workspace_bytes(OpId o) const { return workspace_bytes_[o.index()]; }
  double cost_ns(OpId o) const { return cost_ns_[o.index()]; }
  Phase phase(OpId o) const { return phase_[o.index()]; }
  std::uint8_t flags(OpId o) const { return op_flags_[o.index()]; }
  bool has_flag(OpId o, OpFlag flag) const { return (flags(o) & flag) != 0; }
  std::string_view kind(OpId o) const { return kinds_[op_kind_[o.index()]]; }
  std::string_view name(OpId o) const;  // the kind where it was given no name
  // An attribute such as "strides" or "group"; empty where it has none of that name.
  std::span<const std::int64_t> attribute(OpId o, std::string_view key) const;
  std::vector<std::pair<std::string_view, std::span<const std::int64_t>>> attributes(OpId o) const;

  // Every dependency (data, anti, output, order), each pair once, ascending. Any permutation that
  // respects them gives the same bits (up to the order of summation in unordered storages).
  std::span<const OpId> predecessors(OpId o) const { return predecessors_[o.index()]; }
  std::span<const EdgeKind> predecessor_kinds(OpId o) const {
    return {edge_kinds_.data() + predecessors_.begin[o.index()], predecessors(o).size()};
  }
  std::span<const OpId> successors(OpId o) const { return successors_[o.index()]; }
  std::size_t edge_count() const { return edge_kinds_.size(); }
  // The order in which the ops were given where that respects every edge; else the smallest
  // topological order by id.
  std::span<const OpId> program_order() const { return program_order_; }
  // The OpSpec::after edges as given, for writers.
  std::span<const OpId> given_after(OpId o) const { return after_[o.index()]; }

  // Bytes of host memory this graph takes.
  std::size_t footprint_bytes() const;

 private:
  friend class GraphBuilder;
  static constexpr std::uint8_t kStartBit = 1;
  static constexpr std::uint8_t kEndBit = 2;
  static constexpr std::uint8_t kUnorderedBit = 4;
  struct Attribute {
    std::uint32_t key = 0;  // index into kinds_
    std::uint32_t begin = 0;
    std::uint32_t count = 0;
  };

  std::vector<std::int64_t> storage_bytes_;
  std::vector<std::uint8_t> storage_flags_;
  Rows<OpId> births_, touchers_;
  Rows<ValueId> storage_values_;

  std::vector<StorageId> value_storage_;
  std::vector<std::int64_t> value_bytes_;
  std::vector<ValueKind> value_kind_;
  std::vector<DataType> value_type_;
  std::vector<std::uint8_t> value_has_shape_;
  std::vector<OpId> value_producer_;
  std::vector<ValueId> value_overwrites_;
  Rows<std::int64_t> shapes_;
  Rows<OpId> consumers_;
  NamePool value_names_;

  std::vector<std::uint32_t> op_kind_;
  Rows<ValueId> operands_, results_;
  Rows<StorageId> touched_;
  std::vector<ValueId> inplace_operand_, inplace_result_;
  std::vector<StorageId> inplace_storage_;
  std::vector<std::int64_t> workspace_bytes_;
  std::vector<double> cost_ns_;
  std::vector<Phase> phase_;
  std::vector<std::uint8_t> op_flags_;
  NamePool op_names_;
  std::vector<std::string> kinds_;
  Rows<Attribute> attributes_;
  std::vector<std::int64_t> attribute_values_;
  Rows<OpId> predecessors_, successors_, after_;
  std::vector<EdgeKind> edge_kinds_;
  std::vector<OpId> program_order_;
};

}  // namespace plimsoll::graph
