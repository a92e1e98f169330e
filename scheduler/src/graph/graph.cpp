// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/graph.h"

#include <array>

namespace plimsoll::graph {
namespace {

constexpr std::array<std::string_view, 6> kValueKinds = {
    "activation", "input", "parameter", "gradient", "optimizer_state", "output"};
constexpr std::array<std::string_view, 4> kPhases = {"forward", "loss", "backward", "optimizer"};
constexpr std::array<std::string_view, 11> kDataTypes = {
    "unknown", "float32", "float64", "float16", "bfloat16", "int8",
    "uint8",   "int16",   "int32",   "int64",   "bool"};
constexpr std::array<int, 11> kDataTypeBytes = {0, 4, 8, 2, 2, 1, 1, 2, 4, 8, 1};
constexpr std::array<std::string_view, 4> kEdgeKinds = {"data", "anti", "output", "order"};

template <typename Enum, std::size_t kCount>
bool parse_name(const std::array<std::string_view, kCount>& names, std::string_view name,
                Enum& out) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (names[i] != name) continue;
    out = static_cast<Enum>(i);
    return true;
  }
  return false;
}

template <typename T>
std::size_t heap_bytes(const std::vector<T>& items) {
  return items.capacity() * sizeof(T);
}

template <typename T>
std::size_t heap_bytes(const Rows<T>& rows) {
  return heap_bytes(rows.begin) + heap_bytes(rows.items);
}

}  // namespace

std::string_view value_kind_name(ValueKind kind) {
  return kValueKinds[static_cast<std::size_t>(kind)];
}
std::string_view phase_name(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }
std::string_view data_type_name(DataType type) {
  return kDataTypes[static_cast<std::size_t>(type)];
}
std::string_view edge_kind_name(EdgeKind kind) {
  return kEdgeKinds[static_cast<std::size_t>(kind)];
}
bool parse_value_kind(std::string_view name, ValueKind& kind) {
  return parse_name(kValueKinds, name, kind);
}
bool parse_phase(std::string_view name, Phase& phase) { return parse_name(kPhases, name, phase); }
bool parse_data_type(std::string_view name, DataType& type) {
  return parse_name(kDataTypes, name, type);
}
int data_type_bytes(DataType type) { return kDataTypeBytes[static_cast<std::size_t>(type)]; }

std::span<const std::int64_t> Graph::attribute(OpId o, std::string_view key) const {
  for (const GraphColumns::Attribute& attribute : columns_.attributes[o.index()]) {
    if (columns_.kinds[attribute.key] == key)
      return {columns_.attribute_values.data() + attribute.begin, attribute.count};
  }
  return {};
}

std::vector<std::pair<std::string_view, std::span<const std::int64_t>>> Graph::attributes(
    OpId o) const {
  std::vector<std::pair<std::string_view, std::span<const std::int64_t>>> all;
  for (const GraphColumns::Attribute& attribute : columns_.attributes[o.index()]) {
    all.emplace_back(
        columns_.kinds[attribute.key],
        std::span(columns_.attribute_values.data() + attribute.begin, attribute.count));
  }
  return all;
}

std::size_t Graph::footprint_bytes() const {
  std::size_t bytes = heap_bytes(columns_.storage_bytes) + heap_bytes(columns_.storage_flags) +
                      heap_bytes(columns_.births) + heap_bytes(columns_.touchers) +
                      heap_bytes(columns_.storage_values);
  bytes += heap_bytes(columns_.value_storage) + heap_bytes(columns_.value_bytes) +
           heap_bytes(columns_.value_kind) + heap_bytes(columns_.value_type) +
           heap_bytes(columns_.value_has_shape) + heap_bytes(columns_.value_producer) +
           heap_bytes(columns_.value_overwrites) + heap_bytes(columns_.shapes) +
           heap_bytes(columns_.consumers);
  bytes += heap_bytes(columns_.op_kind) + heap_bytes(columns_.operands) +
           heap_bytes(columns_.results) + heap_bytes(columns_.touched) +
           heap_bytes(columns_.inplace_operand) + heap_bytes(columns_.inplace_result) +
           heap_bytes(columns_.inplace_storage) + heap_bytes(columns_.workspace_bytes) +
           heap_bytes(columns_.cost_ns) + heap_bytes(columns_.phase) +
           heap_bytes(columns_.op_flags) + heap_bytes(columns_.attributes) +
           heap_bytes(columns_.attribute_values);
  bytes += heap_bytes(columns_.predecessors) + heap_bytes(columns_.successors) +
           heap_bytes(columns_.after) + heap_bytes(columns_.edge_kinds) +
           heap_bytes(columns_.program_order);
  // Name pools hold their text and one offset a name.
  bytes += columns_.value_names.text_bytes() + columns_.op_names.text_bytes() +
           sizeof(std::uint32_t) * (value_count() + op_count());
  return bytes;
}

}  // namespace plimsoll::graph
