// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <spdlog/fmt/fmt.h>

namespace plimsoll::graph {
namespace {

using Place = InvalidGraph::Place;

// The sum of all sizes stays below this, so that no solver has to check an addition.
constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 62;
constexpr std::size_t kMaxCount = std::numeric_limits<std::int32_t>::max();

std::string place_text(Place place, std::size_t index) {
  switch (place) {
    case Place::kGraph:
      return "graph";
    case Place::kStorage:
      return fmt::format("storage {}", index);
    case Place::kValue:
      return fmt::format("value {}", index);
    case Place::kOp:
      return fmt::format("op {}", index);
  }
  return "graph";
}

void check_room(std::size_t count, Place place) {
  if (count >= kMaxCount)
    throw InvalidGraph(place, count, fmt::format("more than {} of them", kMaxCount));
}

// Row offsets are 32 bits wide.
void check_row_room(std::size_t items, std::size_t more, std::size_t op) {
  if (items + more >= std::numeric_limits<std::uint32_t>::max())
    throw InvalidGraph(Place::kOp, op, "the graph has more than 2^32 operands");
}

}  // namespace

InvalidGraph::InvalidGraph(Place place, std::size_t index, const std::string& problem)
    : InvalidArgument(fmt::format("{}: {}", place_text(place, index), problem)),
      place_(place),
      index_(index),
      problem_(problem) {}

bool GraphBuilder::has_unordered_writes(StorageId s) const {
  return (columns_.storage_flags[s.index()] & GraphColumns::kUnorderedBit) != 0;
}

std::uint32_t GraphBuilder::intern(std::string_view text) {
  const auto found = interned_.find(text);
  if (found != interned_.end()) return found->second;
  const auto id = static_cast<std::uint32_t>(columns_.kinds.size());
  columns_.kinds.emplace_back(text);
  interned_.emplace(text, id);
  return id;
}

void GraphBuilder::add_bytes(std::int64_t bytes, Place place, std::size_t index) {
  if (bytes < 0)
    throw InvalidGraph(place, index, fmt::format("a size of {} bytes; sizes are 0 or more", bytes));
  if (bytes >= kMaxTotalBytes - total_bytes_)
    throw InvalidGraph(place, index,
                       fmt::format("its {} bytes bring the sum of all sizes beyond 2^62", bytes));
  total_bytes_ += bytes;
}

StorageId GraphBuilder::add_storage(const StorageSpec& spec) {
  const StorageId id(storage_count());
  check_room(id.index(), Place::kStorage);
  add_bytes(spec.size_bytes, Place::kStorage, id.index());
  columns_.storage_bytes.push_back(spec.size_bytes);
  columns_.storage_flags.push_back(
      static_cast<std::uint8_t>((spec.live_at_end ? GraphColumns::kEndBit : 0) |
                                (spec.unordered_writes ? GraphColumns::kUnorderedBit : 0)));
  return id;
}

ValueId GraphBuilder::add_value(const ValueSpec& spec) {
  const std::size_t index = columns_.value_storage.size();
  check_room(index, Place::kValue);
  const StorageId s = spec.storage;
  if (!s.valid() || s.index() >= storage_count())
    throw InvalidGraph(Place::kValue, index,
                       fmt::format("lies in storage {}, which does not exist", s.value()));
  const std::int64_t storage_bytes = columns_.storage_bytes[s.index()];
  const std::int64_t bytes = spec.size_bytes == -1 ? storage_bytes : spec.size_bytes;
  if (bytes < 0 || bytes > storage_bytes)
    throw InvalidGraph(Place::kValue, index,
                       fmt::format("{} bytes in a storage of {}", bytes, storage_bytes));
  if (spec.overwrites.valid()) {
    check_value(spec.overwrites, "overwrites");
    ValueId& by = overwritten_by_[spec.overwrites.index()];
    if (by.valid())
      throw InvalidGraph(Place::kValue, index,
                         fmt::format("overwrites value {}, which value {} overwrites already",
                                     spec.overwrites.value(), by.value()));
    if (storage(spec.overwrites) != s)
      throw InvalidGraph(Place::kValue, index,
                         fmt::format("overwrites value {}, which lies in another storage",
                                     spec.overwrites.value()));
    if (has_unordered_writes(s))
      throw InvalidGraph(Place::kValue, index,
                         fmt::format("overwrites value {} in a storage of unordered writes",
                                     spec.overwrites.value()));
    by = ValueId(index);
  }
  if (spec.shape) {
    for (const std::int64_t extent : *spec.shape) {
      if (extent < 0)
        throw InvalidGraph(Place::kValue, index, fmt::format("an extent of {}", extent));
    }
    columns_.shapes.items.insert(columns_.shapes.items.end(), spec.shape->begin(),
                                 spec.shape->end());
  }
  columns_.shapes.close_row();
  if (spec.kind == ValueKind::kParameter || spec.kind == ValueKind::kOptimizerState)
    columns_.storage_flags[s.index()] |= GraphColumns::kEndBit;
  columns_.value_storage.push_back(s);
  columns_.value_bytes.push_back(bytes);
  columns_.value_kind.push_back(spec.kind);
  columns_.value_type.push_back(spec.data_type);
  columns_.value_has_shape.push_back(spec.shape ? 1 : 0);
  columns_.value_producer.emplace_back();
  columns_.value_overwrites.push_back(spec.overwrites);
  columns_.value_names.add(spec.name);
  overwritten_by_.emplace_back();
  return ValueId(index);
}

ValueId GraphBuilder::add_tensor(std::int64_t size_bytes, ValueKind kind, bool live_at_end,
                                 std::string_view name) {
  const StorageId s = add_storage({.size_bytes = size_bytes, .live_at_end = live_at_end});
  return add_value({.storage = s, .kind = kind, .name = name});
}

void GraphBuilder::check_value(ValueId v, std::string_view role) const {
  if (v.valid() && v.index() < value_count()) return;
  // Inside add_value the row for the value is not there yet, so op_count tells the two apart.
  throw InvalidGraph(
      role == "overwrites" ? Place::kValue : Place::kOp,
      role == "overwrites" ? value_count() : op_count(),
      fmt::format("{} value {}, but there are {} values", role, v.value(), value_count()));
}

OpId GraphBuilder::add_op(const OpSpec& spec) {
  const std::size_t index = op_count();
  check_room(index, Place::kOp);
  for (const ValueId v : spec.operands) check_value(v, "reads");
  for (const ValueId v : spec.results) check_value(v, "writes");
  check_row_room(columns_.operands.items.size(), spec.operands.size(), index);
  check_row_room(columns_.results.items.size(), spec.results.size(), index);
  if (!std::isfinite(spec.cost_ns) || spec.cost_ns < 0)
    throw InvalidGraph(
        Place::kOp, index,
        fmt::format("a cost of {} ns; costs are finite and 0 or more", spec.cost_ns));
  add_bytes(spec.workspace_bytes, Place::kOp, index);
  check_inplace(spec);
  for (const ValueId v : spec.results) {
    OpId& producer = columns_.value_producer[v.index()];
    if (producer.valid())
      throw InvalidGraph(
          Place::kOp, index,
          fmt::format("writes value {}, which op {} writes already", v.value(), producer.value()));
    producer = OpId(index);
  }
  columns_.operands.items.insert(columns_.operands.items.end(), spec.operands.begin(),
                                 spec.operands.end());
  columns_.operands.close_row();
  columns_.results.items.insert(columns_.results.items.end(), spec.results.begin(),
                                spec.results.end());
  columns_.results.close_row();
  for (const OpId before : spec.after) after_.emplace_back(OpId(index), before);
  add_attributes(spec);
  const bool has_candidate = spec.inplace_operand.valid();
  columns_.inplace_operand.push_back(spec.inplace_operand);
  columns_.inplace_storage.push_back(has_candidate ? storage(spec.inplace_operand) : StorageId());
  columns_.inplace_result.push_back(!has_candidate                ? ValueId()
                                    : spec.inplace_result.valid() ? spec.inplace_result
                                                                  : spec.results.front());
  columns_.workspace_bytes.push_back(spec.workspace_bytes);
  columns_.cost_ns.push_back(spec.cost_ns);
  columns_.phase.push_back(spec.phase);
  columns_.op_flags.push_back(spec.flags);
  columns_.op_names.add(spec.name);
  columns_.op_kind.push_back(intern(spec.kind));
  return OpId(index);
}

void GraphBuilder::check_inplace(const OpSpec& spec) const {
  const std::size_t index = op_count();
  if (!spec.inplace_operand.valid()) {
    if (spec.inplace_result.valid())
      throw InvalidGraph(Place::kOp, index, "names an in-place result but no operand for it");
    return;
  }
  const auto has = [](const std::vector<ValueId>& values, ValueId v) {
    return std::find(values.begin(), values.end(), v) != values.end();
  };
  if (!has(spec.operands, spec.inplace_operand))
    throw InvalidGraph(Place::kOp, index,
                       fmt::format("may overwrite value {}, which is none of its operands",
                                   spec.inplace_operand.value()));
  if (spec.inplace_result.valid() ? !has(spec.results, spec.inplace_result)
                                  : spec.results.size() != 1)
    throw InvalidGraph(Place::kOp, index,
                       fmt::format("may overwrite value {}, but it is not clear with which of its "
                                   "{} results",
                                   spec.inplace_operand.value(), spec.results.size()));
  const ValueId result = spec.inplace_result.valid() ? spec.inplace_result : spec.results.front();
  const StorageId from = storage(spec.inplace_operand);
  const StorageId to = storage(result);
  if (from == to || columns_.storage_bytes[from.index()] != columns_.storage_bytes[to.index()])
    throw InvalidGraph(Place::kOp, index,
                       fmt::format("may write value {} over value {} only if they lie in different "
                                   "storages of equal size",
                                   result.value(), spec.inplace_operand.value()));
}

void GraphBuilder::add_attributes(const OpSpec& spec) {
  check_row_room(columns_.attribute_values.size(), 0, op_count());
  for (const auto& [key, values] : spec.attributes) {
    columns_.attributes.items.push_back(
        {intern(key), static_cast<std::uint32_t>(columns_.attribute_values.size()),
         static_cast<std::uint32_t>(values.size())});
    columns_.attribute_values.insert(columns_.attribute_values.end(), values.begin(), values.end());
  }
  columns_.attributes.close_row();
}

}  // namespace plimsoll::graph
