// SPDX-License-Identifier: Apache-2.0
// How a graph lies in memory: flat columns, no heap block per op.
//
// Nouns: Rows, NamePool, GraphColumns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/graph/kinds.h"

namespace plimsoll::graph {

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

// What a Graph holds, by id. GraphBuilder fills it, checks it and hands it over; Graph explains
// each column at the accessor of the same name.
struct GraphColumns {
  static constexpr std::uint8_t kStartBit = 1;  // of storage_flags
  static constexpr std::uint8_t kEndBit = 2;
  static constexpr std::uint8_t kUnorderedBit = 4;
  struct Attribute {
    std::uint32_t key = 0;  // index into kinds
    std::uint32_t begin = 0;
    std::uint32_t count = 0;
  };

  std::vector<std::int64_t> storage_bytes;
  std::vector<std::uint8_t> storage_flags;
  Rows<OpId> births, touchers;
  Rows<ValueId> storage_values;

  std::vector<StorageId> value_storage;
  std::vector<std::int64_t> value_bytes;
  std::vector<ValueKind> value_kind;
  std::vector<DataType> value_type;
  std::vector<std::uint8_t> value_has_shape;
  std::vector<OpId> value_producer;
  std::vector<ValueId> value_overwrites;
  Rows<std::int64_t> shapes;
  Rows<OpId> consumers;
  NamePool value_names;

  std::vector<std::uint32_t> op_kind;
  Rows<ValueId> operands, results;
  Rows<StorageId> touched;
  std::vector<ValueId> inplace_operand, inplace_result;
  std::vector<StorageId> inplace_storage;
  std::vector<std::int64_t> workspace_bytes;
  std::vector<double> cost_ns;
  std::vector<Phase> phase;
  std::vector<std::uint8_t> op_flags;
  NamePool op_names;
  std::vector<std::string> kinds;
  Rows<Attribute> attributes;
  std::vector<std::int64_t> attribute_values;
  Rows<OpId> predecessors, successors, after;
  std::vector<EdgeKind> edge_kinds;
  std::vector<OpId> program_order;

  // The name of an op; its kind where it was given none.
  std::string_view op_name(OpId o) const {
    const std::string_view given = op_names[o.index()];
    return given.empty() ? std::string_view(kinds[op_kind[o.index()]]) : given;
  }
};

}  // namespace plimsoll::graph
