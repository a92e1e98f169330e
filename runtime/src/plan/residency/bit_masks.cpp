// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/bit_masks.h"

#include <algorithm>
#include <string>

#include "plimsoll/graph/builder.h"

namespace plimsoll::plan {

using graph::Graph;
using graph::OpId;
using graph::StorageId;
using graph::ValueId;

namespace {

// Where a mask is packed and unpacked: after and before these positions of the program order.
struct Mask {
  ValueId value;
  std::size_t pack_after = 0;
  std::size_t unpack_before = 0;
  std::int64_t bits_bytes = 0;
  ValueId bits, again;  // in the new graph
};

bool takes_two_values(const Graph& graph, ValueId v) {
  if (graph.data_type(v) == graph::DataType::kBool) return true;
  const OpId producer = graph.producer(v);
  for (const std::int64_t index : graph.attribute(producer, "two_valued"))
    if (index >= 0 && index < static_cast<std::int64_t>(graph.results(producer).size()) &&
        graph.results(producer)[std::size_t(index)] == v)
      return true;
  return false;
}

class Packer {
 public:
  explicit Packer(const Graph& graph) : graph_(graph), position_(graph.op_count()) {
    const auto order = graph.program_order();
    for (std::size_t i = 0; i < order.size(); ++i) position_[order[i].index()] = i;
    for (std::size_t i = 0; i < graph.op_count(); ++i)
      is_stated_ = is_stated_ || graph.has_flag(OpId(i), graph::kRecomputable);
  }

  BitMasks run() {
    BitMasks result;
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) consider(StorageId(i), result);
    if (!masks_.empty()) result.graph = make();
    return result;
  }

 private:
  void consider(StorageId s, BitMasks& result) {
    if (graph_.values(s).size() != 1 || graph_.live_at_start(s) || graph_.live_at_end(s)) return;
    const ValueId v = graph_.values(s)[0];
    const std::int64_t element = graph::data_type_bytes(graph_.data_type(v));
    if (element == 0 || !takes_two_values(graph_, v)) return;
    Mask mask;
    mask.value = v;
    mask.bits_bytes = (graph_.size_bytes(v) / element + 7) / 8;
    std::vector<std::size_t> uses;
    for (const OpId o : graph_.touchers(s)) uses.push_back(position_[o.index()]);
    std::sort(uses.begin(), uses.end());
    std::size_t longest = 0;
    for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
      if (uses[i + 1] - uses[i] <= longest) continue;
      longest = uses[i + 1] - uses[i];
      mask.pack_after = uses[i];
      mask.unpack_before = uses[i + 1];
    }
    if (longest <= 2 || mask.bits_bytes >= graph_.size_bytes(s)) return;
    masks_.push_back(mask);
    result.packed.push_back(s);
    result.saved_bytes += graph_.size_bytes(s) - mask.bits_bytes;
  }

  Graph make() {
    copy_values();
    number_ops();
    const auto order = graph_.program_order();
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Mask& mask : masks_)
        if (mask.unpack_before == i) add_codec("unpack_bits", mask.bits, mask.again, order[i]);
      copy_op(order[i]);
      for (const Mask& mask : masks_)
        if (mask.pack_after == i) add_codec("pack_bits", mask.value, mask.bits, order[i]);
    }
    return builder_.build();
  }
  void copy_values() {
    for (std::size_t i = 0; i < graph_.storage_count(); ++i)
      builder_.add_storage({.size_bytes = graph_.size_bytes(StorageId(i)),
                            .live_at_end = graph_.live_at_end(StorageId(i)),
                            .unordered_writes = graph_.unordered_writes(StorageId(i))});
    for (std::size_t i = 0; i < graph_.value_count(); ++i) {
      const ValueId v(i);
      graph::ValueSpec spec = spec_of(v);
      spec.storage = graph_.storage(v);
      spec.overwrites = graph_.overwrites(v);
      builder_.add_value(spec);
    }
    for (Mask& mask : masks_) {
      mask.bits = builder_.add_tensor(mask.bits_bytes);
      graph::ValueSpec spec = spec_of(mask.value);
      spec.storage = builder_.add_storage({.size_bytes = graph_.size_bytes(mask.value)});
      mask.again = builder_.add_value(spec);
    }
  }
  graph::ValueSpec spec_of(ValueId v) const {
    graph::ValueSpec spec;
    spec.kind = graph_.kind(v);
    spec.name = graph_.name(v);
    spec.size_bytes = graph_.size_bytes(v);
    spec.data_type = graph_.data_type(v);
    if (graph_.has_shape(v)) spec.shape.emplace(graph_.shape(v).begin(), graph_.shape(v).end());
    return spec;
  }
  // The numbers that the given ops will have.
  void number_ops() {
    new_op_.resize(graph_.op_count());
    std::size_t next = 0;
    const auto order = graph_.program_order();
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Mask& mask : masks_) next += mask.unpack_before == i ? 1 : 0;
      new_op_[order[i].index()] = OpId(next++);
      for (const Mask& mask : masks_) next += mask.pack_after == i ? 1 : 0;
    }
  }
  void copy_op(OpId o) {
    graph::OpSpec spec;
    spec.kind = graph_.kind(o);
    spec.name = graph_.name(o);
    for (const ValueId v : graph_.operands(o)) spec.operands.push_back(operand(o, v));
    spec.results.assign(graph_.results(o).begin(), graph_.results(o).end());
    for (const OpId before : graph_.given_after(o)) spec.after.push_back(new_op_[before.index()]);
    if (graph_.inplace_operand(o).valid()) {
      spec.inplace_operand = operand(o, graph_.inplace_operand(o));
      spec.inplace_result = graph_.inplace_result(o);
    }
    spec.workspace_bytes = graph_.workspace_bytes(o);
    spec.cost_ns = graph_.cost_ns(o);
    spec.phase = graph_.phase(o);
    spec.flags = graph_.flags(o);
    for (const auto& [key, values] : graph_.attributes(o))
      spec.attributes.emplace_back(std::string(key),
                                   std::vector<std::int64_t>(values.begin(), values.end()));
    builder_.add_op(spec);
  }
  ValueId operand(OpId o, ValueId v) const {
    for (const Mask& mask : masks_)
      if (mask.value == v && position_[o.index()] >= mask.unpack_before) return mask.again;
    return v;
  }
  void add_codec(const char* kind, ValueId from, ValueId to, OpId beside) {
    graph::OpSpec spec;
    spec.kind = kind;
    spec.operands = {from};
    spec.results = {to};
    spec.phase = graph_.phase(beside);
    // A graph in which no op says that it may run again means that all may.
    if (is_stated_) spec.flags = graph::kRecomputable;
    builder_.add_op(spec);
  }

  const Graph& graph_;
  std::vector<std::size_t> position_;  // by op, in program order
  bool is_stated_ = false;
  std::vector<Mask> masks_;
  std::vector<OpId> new_op_;
  graph::GraphBuilder builder_;
};

}  // namespace

BitMasks pack_bit_masks(const Graph& graph) { return Packer(graph).run(); }

}  // namespace plimsoll::plan
