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

std::uint32_t GraphBuilder::intern(std::string_view text) {
  const auto found = interned_.find(text);
  if (found != interned_.end()) return found->second;
  const auto id = static_cast<std::uint32_t>(graph_.kinds_.size());
  graph_.kinds_.emplace_back(text);
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
  const StorageId id(graph_.storage_bytes_.size());
  check_room(id.index(), Place::kStorage);
  add_bytes(spec.size_bytes, Place::kStorage, id.index());
  graph_.storage_bytes_.push_back(spec.size_bytes);
  graph_.storage_flags_.push_back(
      static_cast<std::uint8_t>((spec.live_at_end ? Graph::kEndBit : 0) |
                                (spec.unordered_writes ? Graph::kUnorderedBit : 0)));
  return id;
}

ValueId GraphBuilder::add_value(const ValueSpec& spec) {
  const std::size_t index = graph_.value_storage_.size();
  check_room(index, Place::kValue);
  const StorageId s = spec.storage;
  if (!s.valid() || s.index() >= graph_.storage_count())
    throw InvalidGraph(Place::kValue, index,
                       fmt::format("lies in storage {}, which does not exist", s.value()));
  const std::int64_t storage_bytes = graph_.size_bytes(s);
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
    if (graph_.storage(spec.overwrites) != s)
      throw InvalidGraph(Place::kValue, index,
                         fmt::format("overwrites value {}, which lies in another storage",
                                     spec.overwrites.value()));
    if (graph_.unordered_writes(s))
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
    graph_.shapes_.items.insert(graph_.shapes_.items.end(), spec.shape->begin(), spec.shape->end());
  }
  graph_.shapes_.close_row();
  if (spec.kind == ValueKind::kParameter || spec.kind == ValueKind::kOptimizerState)
    graph_.storage_flags_[s.index()] |= Graph::kEndBit;
  graph_.value_storage_.push_back(s);
  graph_.value_bytes_.push_back(bytes);
  graph_.value_kind_.push_back(spec.kind);
  graph_.value_type_.push_back(spec.data_type);
  graph_.value_has_shape_.push_back(spec.shape ? 1 : 0);
  graph_.value_producer_.emplace_back();
  graph_.value_overwrites_.push_back(spec.overwrites);
  graph_.value_names_.add(spec.name);
  overwritten_by_.emplace_back();
  return ValueId(index);
}

ValueId GraphBuilder::add_tensor(std::int64_t size_bytes, ValueKind kind, bool live_at_end,
                                 std::string_view name) {
  const StorageId s = add_storage({.size_bytes = size_bytes, .live_at_end = live_at_end});
  return add_value({.storage = s, .kind = kind, .name = name});
}

void GraphBuilder::check_value(ValueId v, std::string_view role) const {
  if (v.valid() && v.index() < graph_.value_count()) return;
  // Inside add_value the row for the value is not there yet, so op_count tells the two apart.
  throw InvalidGraph(
      role == "overwrites" ? Place::kValue : Place::kOp,
      role == "overwrites" ? graph_.value_count() : graph_.op_count(),
      fmt::format("{} value {}, but there are {} values", role, v.value(), graph_.value_count()));
}

OpId GraphBuilder::add_op(const OpSpec& spec) {
  const std::size_t index = graph_.op_count();
  check_room(index, Place::kOp);
  for (const ValueId v : spec.operands) check_value(v, "reads");
  for (const ValueId v : spec.results) check_value(v, "writes");
  check_row_room(graph_.operands_.items.size(), spec.operands.size(), index);
  check_row_room(graph_.results_.items.size(), spec.results.size(), index);
  if (!std::isfinite(spec.cost_ns) || spec.cost_ns < 0)
    throw InvalidGraph(
        Place::kOp, index,
        fmt::format("a cost of {} ns; costs are finite and 0 or more", spec.cost_ns));
  add_bytes(spec.workspace_bytes, Place::kOp, index);
  check_inplace(spec);
  for (const ValueId v : spec.results) {
    OpId& producer = graph_.value_producer_[v.index()];
    if (producer.valid())
      throw InvalidGraph(
          Place::kOp, index,
          fmt::format("writes value {}, which op {} writes already", v.value(), producer.value()));
    producer = OpId(index);
  }
  graph_.operands_.items.insert(graph_.operands_.items.end(), spec.operands.begin(),
                                spec.operands.end());
  graph_.operands_.close_row();
  graph_.results_.items.insert(graph_.results_.items.end(), spec.results.begin(),
                               spec.results.end());
  graph_.results_.close_row();
  for (const OpId before : spec.after) after_.emplace_back(OpId(index), before);
  add_attributes(spec);
  const bool has_candidate = spec.inplace_operand.valid();
  graph_.inplace_operand_.push_back(spec.inplace_operand);
  graph_.inplace_storage_.push_back(has_candidate ? graph_.storage(spec.inplace_operand)
                                                  : StorageId());
  graph_.inplace_result_.push_back(!has_candidate                ? ValueId()
                                   : spec.inplace_result.valid() ? spec.inplace_result
                                                                 : spec.results.front());
  graph_.workspace_bytes_.push_back(spec.workspace_bytes);
  graph_.cost_ns_.push_back(spec.cost_ns);
  graph_.phase_.push_back(spec.phase);
  graph_.op_flags_.push_back(spec.flags);
  graph_.op_names_.add(spec.name);
  graph_.op_kind_.push_back(intern(spec.kind));
  return OpId(index);
}

void GraphBuilder::check_inplace(const OpSpec& spec) const {
  const std::size_t index = graph_.op_count();
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
  const StorageId from = graph_.storage(spec.inplace_operand);
  const StorageId to = graph_.storage(result);
  if (from == to || graph_.size_bytes(from) != graph_.size_bytes(to))
    throw InvalidGraph(Place::kOp, index,
                       fmt::format("may write value {} over value {} only if they lie in different "
                                   "storages of equal size",
                                   result.value(), spec.inplace_operand.value()));
}

void GraphBuilder::add_attributes(const OpSpec& spec) {
  check_row_room(graph_.attribute_values_.size(), 0, graph_.op_count());
  for (const auto& [key, values] : spec.attributes) {
    graph_.attributes_.items.push_back({intern(key),
                                        static_cast<std::uint32_t>(graph_.attribute_values_.size()),
                                        static_cast<std::uint32_t>(values.size())});
    graph_.attribute_values_.insert(graph_.attribute_values_.end(), values.begin(), values.end());
  }
  graph_.attributes_.close_row();
}

}  // namespace plimsoll::graph
