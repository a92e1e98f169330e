// SPDX-License-Identifier: Apache-2.0
// Makes a Graph, and refuses what is none.
//
// Nouns: StorageSpec, ValueSpec, OpSpec, GraphBuilder, InvalidGraph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/graph.h"

namespace plimsoll::graph {

// What is wrong with a graph, and where, so that a reader can say at which line.
class InvalidGraph : public InvalidArgument {
 public:
  enum class Place : std::uint8_t { kGraph, kStorage, kValue, kOp };
  InvalidGraph(Place place, std::size_t index, const std::string& problem);
  Place place() const noexcept { return place_; }
  std::size_t index() const noexcept { return index_; }
  const std::string& problem() const noexcept { return problem_; }

 private:
  Place place_;
  std::size_t index_;
  std::string problem_;
};

struct StorageSpec {
  std::int64_t size_bytes = 0;    // >= 0
  bool live_at_end = false;       // never freed
  bool unordered_writes = false;  // values are partial sums or disjoint slices
};

struct ValueSpec {
  StorageId storage;
  ValueKind kind = ValueKind::kActivation;  // parameters and optimizer state are live at the end
  std::string_view name = {};
  ValueId overwrites = {};       // the version in the same storage that this one replaces
  std::int64_t size_bytes = -1;  // at most the storage's; -1: all of it
  DataType data_type = DataType::kUnknown;
  std::optional<std::vector<std::int64_t>> shape = std::nullopt;
};

struct OpSpec {
  std::string_view kind = {};
  std::string_view name = {};
  std::vector<ValueId> operands = {};
  std::vector<ValueId> results = {};
  std::vector<OpId> after = {};  // extra edges; may name ops yet to be added
  // The operand whose storage the result may be written over, if the operand dies here.
  ValueId inplace_operand = {};
  ValueId inplace_result = {};  // invalid: the only result
  std::int64_t workspace_bytes = 0;
  double cost_ns = 0;  // finite, >= 0
  Phase phase = Phase::kForward;
  std::uint8_t flags = kNoFlags;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> attributes = {};
};

// Collects specs in flat arrays (no block per op), then checks the whole and derives all edges.
// Ids count up from 0 in the order of the calls. An op that overwrites a value states it on the
// result (ValueSpec::overwrites); anti and output edges follow from that. Ops may be added in any
// order, but their values first.
// Errors: InvalidGraph from every call: negative sizes, sums beyond 2^62 bytes, ids that do not
// exist, a second producer, a value overwritten twice, NaN or negative costs, contradictory
// in-place candidates, more than 2^31 - 1 of anything; from build(): cycles, named.
// Single owner. The builder is empty after build(), and unspecified after a throw.
class GraphBuilder {
 public:
  StorageId add_storage(const StorageSpec& spec);
  ValueId add_value(const ValueSpec& spec);
  // A value in a storage of its own, the usual case.
  ValueId add_tensor(std::int64_t size_bytes, ValueKind kind = ValueKind::kActivation,
                     bool live_at_end = false, std::string_view name = {});
  OpId add_op(const OpSpec& spec);
  // One more OpSpec::after edge: `op` waits for `before`.
  void add_after(OpId op, OpId before) { after_.emplace_back(op, before); }

  std::size_t op_count() const { return columns_.op_kind.size(); }
  std::size_t value_count() const { return columns_.value_storage.size(); }
  StorageId storage(ValueId v) const { return columns_.value_storage[v.index()]; }
  std::int64_t size_bytes(ValueId v) const { return columns_.value_bytes[v.index()]; }

  // Cost: O((ops + edges) log) time. An empty graph is a valid graph.
  Graph build();

 private:
  struct Edge {
    std::int32_t from;
    std::int32_t to;
    EdgeKind kind;
  };
  std::size_t storage_count() const { return columns_.storage_bytes.size(); }
  bool has_unordered_writes(StorageId s) const;
  std::uint32_t intern(std::string_view text);
  void add_bytes(std::int64_t bytes, InvalidGraph::Place place, std::size_t index);
  void check_value(ValueId v, std::string_view role) const;
  void check_inplace(const OpSpec& spec) const;
  void add_attributes(const OpSpec& spec);
  void derive_consumers();
  void derive_after();
  void derive_storages();
  void check_versions() const;
  void check_inplace_results() const;
  void derive_touched();
  void add_version_edges();
  void add_chain_edges(std::uint8_t flag);
  void compress_edges();
  void find_program_order();
  std::string name_cycle(const std::vector<std::int32_t>& waiting) const;

  GraphColumns columns_;
  std::vector<Edge> edges_;
  std::vector<std::pair<OpId, OpId>> after_;  // (op, what it waits for)
  std::vector<ValueId> overwritten_by_;       // by value
  std::map<std::string, std::uint32_t, std::less<>> interned_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace plimsoll::graph
