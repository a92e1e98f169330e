// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <unordered_map>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/onnx.h"

#include "graph/file_bytes.h"
#include "graph/onnx/model.h"
#include "graph/onnx/shapes.h"

namespace plimsoll::graph {
namespace {

using onnx::Model;
using onnx::Node;
using onnx::Tensor;

DataType data_type_of(std::int32_t type) {
  switch (type) {
    case 1:
      return DataType::kFloat32;
    case 2:
      return DataType::kUInt8;
    case 3:
      return DataType::kInt8;
    case 5:
      return DataType::kInt16;
    case 6:
      return DataType::kInt32;
    case 7:
      return DataType::kInt64;
    case 9:
      return DataType::kBool;
    case 10:
      return DataType::kFloat16;
    case 11:
      return DataType::kFloat64;
    case 16:
      return DataType::kBFloat16;
    default:
      return DataType::kUnknown;
  }
}

class Converter {
 public:
  Converter(Model model, const std::string& file) : model_(std::move(model)), file_(file) {}

  Graph convert() {
    try {
      find_producers();
      for (const std::string& name : model_.inputs) declare_input(name);
      for (const std::size_t i : sorted_nodes()) convert_node(i);
      mark_outputs();
      return builder_.build();
    } catch (const InvalidGraph& error) {
      throw InvalidFile(file_, "", error.what());
    }
  }

 private:
  std::string place(std::size_t i) const {
    const Node& node = model_.nodes[i];
    return fmt::format("byte {}, node {} '{}' ({})", node.byte, i, node.name, node.kind);
  }
  [[noreturn]] void refuse(std::size_t i, const std::string& problem) const {
    throw InvalidFile(file_, place(i), problem);
  }

  void find_producers() {
    std::set<std::string> given(model_.inputs.begin(), model_.inputs.end());
    if (given.size() != model_.inputs.size())
      throw InvalidFile(file_, "", "two inputs have the same name");
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      if (model_.nodes[i].kind.empty()) refuse(i, "has no operator");
      for (const std::string& name : model_.nodes[i].outputs) {
        if (name.empty()) continue;
        if (given.contains(name) || model_.initializers.contains(name) ||
            !producer_.emplace(name, i).second)
          refuse(i, fmt::format("writes '{}', which something else writes already", name));
      }
    }
    outputs_.insert(model_.outputs.begin(), model_.outputs.end());
  }

  std::vector<std::string> reads(const Node& node) const {
    std::vector<std::string> names = node.inputs;
    names.insert(names.end(), node.captured.begin(), node.captured.end());
    return names;
  }

  // The nodes as listed where that is topological, which the format asks for; else the smallest
  // topological order. Errors: InvalidFile for a cycle.
  std::vector<std::size_t> sorted_nodes() const {
    const std::size_t count = model_.nodes.size();
    std::vector<std::size_t> waiting(count, 0);
    std::vector<std::vector<std::size_t>> readers(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (const std::string& name : reads(model_.nodes[i])) {
        const auto found = producer_.find(name);
        if (found == producer_.end()) continue;
        ++waiting[i];
        readers[found->second].push_back(i);
      }
    }
    std::set<std::size_t> ready;
    for (std::size_t i = 0; i < count; ++i) {
      if (waiting[i] == 0) ready.insert(i);
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      const std::size_t i = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(i);
      for (const std::size_t next : readers[i]) {
        if (--waiting[next] == 0) ready.insert(next);
      }
    }
    for (std::size_t i = 0; order.size() != count && i < count; ++i) {
      if (waiting[i] > 0) refuse(i, "is part of a cycle or hangs on one");
    }
    return order;
  }

  void declare_input(const std::string& name) {
    const Tensor& tensor = model_.declared[name];
    known_[name] = tensor;
    if (!tensor.shape) {
      const auto symbol = model_.symbolic.find(name);
      if (symbol != model_.symbolic.end())
        throw InvalidFile(
            file_, fmt::format("input '{}'", name),
            fmt::format("has the symbolic extent '{}'; give it a number", symbol->second));
    }
    add_value(name, tensor, ValueKind::kInput, fmt::format("input '{}'", name));
  }

  void add_value(const std::string& name, const Tensor& tensor, ValueKind kind,
                 const std::string& where) {
    if (!tensor.shape)
      throw InvalidFile(file_, where,
                        fmt::format("nothing says or implies the shape of '{}'", name));
    const int bits = onnx::element_bits(tensor.type);
    if (bits == 0)
      throw InvalidFile(
          file_, where,
          fmt::format("'{}' has element type {}, whose size is not known", name, tensor.type));
    std::int64_t elements = 1;
    try {
      for (const std::int64_t extent : *tensor.shape) elements = checked_multiply(elements, extent);
      elements = checked_add(checked_multiply(elements, bits), 7) / 8;
    } catch (const InvalidArgument&) {
      throw InvalidFile(file_, where, fmt::format("the size of '{}' leaves 64 bits", name));
    }
    const bool is_output = outputs_.contains(name);
    const StorageId s = builder_.add_storage({.size_bytes = elements, .live_at_end = is_output});
    value_of_[name] = builder_.add_value(
        {.storage = s,
         .kind = is_output && kind == ValueKind::kActivation ? ValueKind::kOutput : kind,
         .name = name,
         .data_type = data_type_of(tensor.type),
         .shape = tensor.shape});
  }

  const Tensor* find_tensor(std::size_t node, std::size_t input, const std::string& name) const {
    if (name.empty()) return nullptr;
    const auto known = known_.find(name);
    if (known != known_.end()) return &known->second;
    const auto weight = model_.initializers.find(name);
    if (weight != model_.initializers.end()) return &weight->second;
    const auto declared = model_.declared.find(name);
    if (declared != model_.declared.end() && !producer_.contains(name)) return &declared->second;
    // A file stripped of its weights leaves their names dangling, never the first operand's.
    if (input == 0) refuse(node, fmt::format("reads '{}', which nothing produces", name));
    return nullptr;
  }

  void convert_node(std::size_t i) {
    const Node& node = model_.nodes[i];
    std::vector<const Tensor*> inputs;
    inputs.reserve(node.inputs.size());
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      inputs.push_back(find_tensor(i, k, node.inputs[k]));
    std::vector<Tensor> results;
    std::string contradiction;
    try {
      results = onnx::infer(node, inputs);
    } catch (const onnx::ShapeError& error) {
      contradiction = error.what();
    } catch (const InvalidArgument& error) {
      contradiction = error.what();
    }
    results.resize(node.outputs.size());
    for (std::size_t k = 0; k < results.size(); ++k)
      take_declared(i, node.outputs[k], contradiction, results[k]);
    if (is_constant(results)) {
      for (std::size_t k = 0; k < results.size(); ++k) known_[node.outputs[k]] = results[k];
      return;
    }
    add_op(i, results);
  }

  // Declared shapes win: exporters may leave attributes out, not sizes.
  void take_declared(std::size_t i, const std::string& name, const std::string& contradiction,
                     Tensor& tensor) const {
    const auto declared = model_.declared.find(name);
    if (declared != model_.declared.end()) {
      if (declared->second.shape) tensor.shape = declared->second.shape;
      if (declared->second.type != onnx::kUndefined) tensor.type = declared->second.type;
    }
    if (name.empty() || tensor.shape || contradiction.empty()) return;
    refuse(i, fmt::format("the shape of '{}' cannot be inferred: {}", name, contradiction));
  }

  bool is_constant(const std::vector<Tensor>& results) const {
    return results.size() == 1 && (results[0].integers || results[0].reals);
  }

  void add_op(std::size_t i, const std::vector<Tensor>& results) {
    const Node& node = model_.nodes[i];
    OpSpec spec;
    spec.kind = node.kind;
    spec.name = node.name;
    for (const std::string& name : reads(node)) {
      const auto found = value_of_.find(name);
      if (found != value_of_.end()) spec.operands.push_back(found->second);
    }
    for (std::size_t k = 0; k < results.size(); ++k) {
      const std::string& name = node.outputs[k];
      if (name.empty()) continue;
      known_[name] = results[k];
      add_value(name, results[k], ValueKind::kActivation, place(i));
      spec.results.push_back(value_of_[name]);
    }
    if (spec.results.size() == 1 && onnx::is_elementwise(node.kind))
      spec.inplace_operand = overwritable(spec);
    static constexpr std::string_view kKept[] = {"axis", "group",   "kernel_shape",
                                                 "pads", "strides", "dilations"};
    for (const std::string_view key : kKept) {
      const onnx::Attribute* attribute = node.attribute(key);
      if (attribute == nullptr) continue;
      const bool scalar = key == "axis" || key == "group";
      spec.attributes.emplace_back(
          key, scalar ? std::vector<std::int64_t>{attribute->integer} : attribute->integers);
    }
    keep_weight_shape(node, spec);
    builder_.add_op(spec);
  }

  // The weight's shape, which rewriting needs; weights are no values here.
  void keep_weight_shape(const Node& node, OpSpec& spec) const {
    if (node.kind != "Conv" || node.inputs.size() < 2) return;
    const auto weight = model_.initializers.find(node.inputs[1]);
    if (weight != model_.initializers.end() && weight->second.shape)
      spec.attributes.emplace_back("weight_shape", *weight->second.shape);
    if (node.inputs.size() > 2 && !node.inputs[2].empty())
      spec.attributes.emplace_back("bias", onnx::Shape{1});
  }

  // The first operand of the result's size that is not the result's own.
  ValueId overwritable(const OpSpec& spec) const {
    for (const ValueId v : spec.operands) {
      if (builder_.size_bytes(v) == builder_.size_bytes(spec.results[0])) return v;
    }
    return {};
  }

  void mark_outputs() const {
    for (const std::string& name : model_.outputs) {
      if (!value_of_.contains(name) && !known_.contains(name) &&
          !model_.initializers.contains(name))
        throw InvalidFile(file_, fmt::format("output '{}'", name), "nothing produces it");
    }
  }

  Model model_;
  const std::string& file_;
  GraphBuilder builder_;
  std::unordered_map<std::string, std::size_t> producer_;
  std::set<std::string> outputs_;
  std::unordered_map<std::string, Tensor> known_;
  std::unordered_map<std::string, ValueId> value_of_;
};

}  // namespace

Graph read_onnx(std::string_view bytes, const std::string& file, const OnnxOptions& options) {
  return Converter(onnx::parse_model(bytes, file, options.dimensions), file).convert();
}

Graph read_onnx_file(const std::filesystem::path& path, const OnnxOptions& options) {
  return read_onnx(read_file_bytes(path), path.string(), options);
}

}  // namespace plimsoll::graph
