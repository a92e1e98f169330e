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

std::string_view Graph::name(OpId o) const {
  const std::string_view given = op_names_[o.index()];
  return given.empty() ? kind(o) : given;
}

std::span<const std::int64_t> Graph::attribute(OpId o, std::string_view key) const {
  for (const Attribute& attribute : attributes_[o.index()]) {
    if (kinds_[attribute.key] == key)
      return {attribute_values_.data() + attribute.begin, attribute.count};
  }
  return {};
}

std::vector<std::pair<std::string_view, std::span<const std::int64_t>>> Graph::attributes(
    OpId o) const {
  std::vector<std::pair<std::string_view, std::span<const std::int64_t>>> all;
  for (const Attribute& attribute : attributes_[o.index()]) {
    all.emplace_back(kinds_[attribute.key],
                     std::span(attribute_values_.data() + attribute.begin, attribute.count));
  }
  return all;
}

std::size_t Graph::footprint_bytes() const {
  std::size_t bytes = heap_bytes(storage_bytes_) + heap_bytes(storage_flags_) +
                      heap_bytes(births_) + heap_bytes(touchers_) + heap_bytes(storage_values_);
  bytes += heap_bytes(value_storage_) + heap_bytes(value_bytes_) + heap_bytes(value_kind_) +
           heap_bytes(value_type_) + heap_bytes(value_has_shape_) + heap_bytes(value_producer_) +
           heap_bytes(value_overwrites_) + heap_bytes(shapes_) + heap_bytes(consumers_);
  bytes += heap_bytes(op_kind_) + heap_bytes(operands_) + heap_bytes(results_) +
           heap_bytes(touched_) + heap_bytes(inplace_operand_) + heap_bytes(inplace_result_) +
           heap_bytes(inplace_storage_) + heap_bytes(workspace_bytes_) + heap_bytes(cost_ns_) +
           heap_bytes(phase_) + heap_bytes(op_flags_) + heap_bytes(attributes_) +
           heap_bytes(attribute_values_);
  bytes += heap_bytes(predecessors_) + heap_bytes(successors_) + heap_bytes(after_) +
           heap_bytes(edge_kinds_) + heap_bytes(program_order_);
  // Name pools hold their text and one offset a name.
  bytes += value_names_.text_bytes() + op_names_.text_bytes() +
           sizeof(std::uint32_t) * (value_count() + op_count());
  return bytes;
}

}  // namespace plimsoll::graph
