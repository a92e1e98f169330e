// SPDX-License-Identifier: Apache-2.0
// Writes small ONNX models by hand, field by field, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::graph::testing {

struct OnnxNode {
  std::string kind;
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> ints = {};
  std::vector<std::pair<std::string, std::int64_t>> integers = {};
  std::vector<std::pair<std::string, std::string>> strings = {};
  std::vector<std::string> graphs = {};
  std::vector<std::pair<std::string, float>> reals = {};
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors = {};  // int64, raw
  std::string name = {};
  std::string domain = {};
  bool packed = false;  // how the lists of integers are written
};

class OnnxModel {
 public:
  void input(const std::string& name, const std::vector<std::int64_t>& shape,
             std::int64_t type = 1) {
    field(graph_, 11, value_info(name, shape, type));
  }
  // A shape of one symbolic extent and then these.
  void symbolic_input(const std::string& name, const std::string& symbol,
                      const std::vector<std::int64_t>& others = {}) {
    std::string dimension;
    field(dimension, 2, symbol);
    std::string shape;
    field(shape, 1, dimension);
    for (const std::int64_t extent : others) {
      std::string other;
      number(other, 1, extent);
      field(shape, 1, other);
    }
    std::string tensor;
    number(tensor, 1, 1);
    field(tensor, 2, shape);
    std::string type;
    field(type, 1, tensor);
    std::string info;
    field(info, 1, name);
    field(info, 2, type);
    field(graph_, 11, info);
  }
  void output(const std::string& name) {
    std::string info;
    field(info, 1, name);
    field(graph_, 12, info);
  }
  void declare(const std::string& name, const std::vector<std::int64_t>& shape,
               std::int64_t type = 1) {
    field(graph_, 13, value_info(name, shape, type));
  }
  // What readers have to pass over: documentation, and fields of later versions.
  void remark(const std::string& text) {
    field(graph_, 10, text);
    field(graph_, 900, text);
  }
  void weight(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::string tensor;
    for (const std::int64_t extent : shape) number(tensor, 1, extent);
    number(tensor, 2, 1);
    field(tensor, 8, name);
    field(graph_, 5, tensor);
  }
  // A one-dimensional int64 initializer with raw data.
  void constant(const std::string& name, const std::vector<std::int64_t>& values) {
    std::string tensor;
    number(tensor, 1, static_cast<std::int64_t>(values.size()));
    number(tensor, 2, 7);
    field(tensor, 8, name);
    field(tensor, 9, raw(values));
    field(graph_, 5, tensor);
  }
  void real_constant(const std::string& name, const std::vector<float>& values) {
    std::string tensor;
    number(tensor, 1, static_cast<std::int64_t>(values.size()));
    number(tensor, 2, 1);
    field(tensor, 8, name);
    field(tensor, 9, raw(values));
    field(graph_, 5, tensor);
  }
  // The same with its values in the typed fields instead of the raw one.
  void listed_constant(const std::string& name, const std::vector<std::int64_t>& values,
                       bool packed) {
    std::string tensor;
    number(tensor, 1, static_cast<std::int64_t>(values.size()));
    number(tensor, 2, 7);
    integers(tensor, 7, values, packed);
    field(tensor, 8, name);
    field(graph_, 5, tensor);
  }
  void listed_real_constant(const std::string& name, const std::vector<float>& values) {
    std::string tensor;
    number(tensor, 1, static_cast<std::int64_t>(values.size()));
    number(tensor, 2, 1);
    field(tensor, 4, raw(values));
    field(tensor, 8, name);
    field(graph_, 5, tensor);
  }
  void external_constant(const std::string& name, std::int64_t count, const std::string& location,
                         std::int64_t offset) {
    std::string tensor;
    number(tensor, 1, count);
    number(tensor, 2, 7);
    field(tensor, 8, name);
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", location},
                                     {"offset", std::to_string(offset)}}) {
      std::string entry;
      field(entry, 1, key);
      field(entry, 2, value);
      field(tensor, 13, entry);
    }
    number(tensor, 14, 1);
    field(graph_, 5, tensor);
  }
  void node(const OnnxNode& node) {
    std::string out;
    for (const std::string& name : node.inputs) field(out, 1, name);
    for (const std::string& name : node.outputs) field(out, 2, name);
    if (!node.name.empty()) field(out, 3, node.name);
    field(out, 4, node.kind);
    if (!node.domain.empty()) field(out, 7, node.domain);
    for (const auto& [key, values] : node.ints) {
      std::string attribute;
      field(attribute, 1, key);
      integers(attribute, 8, values, node.packed);
      number(attribute, 20, 7);
      field(out, 5, attribute);
    }
    for (const auto& [key, value] : node.reals) {
      std::string attribute;
      field(attribute, 1, key);
      real(attribute, 2, value);
      number(attribute, 20, 1);
      field(out, 5, attribute);
    }
    for (const auto& [key, values] : node.tensors) {
      std::string tensor;
      number(tensor, 1, static_cast<std::int64_t>(values.size()));
      number(tensor, 2, 7);
      field(tensor, 9, raw(values));
      std::string attribute;
      field(attribute, 1, key);
      field(attribute, 5, tensor);
      number(attribute, 20, 4);
      field(out, 5, attribute);
    }
    for (const auto& [key, value] : node.integers) {
      std::string attribute;
      field(attribute, 1, key);
      number(attribute, 3, value);
      number(attribute, 20, 2);
      field(out, 5, attribute);
    }
    for (const auto& [key, value] : node.strings) {
      std::string attribute;
      field(attribute, 1, key);
      field(attribute, 4, value);
      number(attribute, 20, 3);
      field(out, 5, attribute);
    }
    for (const std::string& graph : node.graphs) {
      std::string attribute;
      field(attribute, 1, "body");
      field(attribute, 6, graph);
      number(attribute, 20, 5);
      field(out, 5, attribute);
    }
    field(graph_, 1, out);
  }

  const std::string& graph() const { return graph_; }
  std::string bytes() const { return wrap(graph_); }
  static std::string wrap(const std::string& graph) {
    std::string model;
    number(model, 1, 8);
    field(model, 7, graph);
    std::string opset;
    number(opset, 2, 20);
    field(model, 8, opset);
    return model;
  }

 private:
  static void varint(std::string& out, std::uint64_t value) {
    while (value >= 128) {
      out += static_cast<char>((value & 127) | 128);
      value >>= 7;
    }
    out += static_cast<char>(value);
  }
  static void number(std::string& out, int tag, std::int64_t value) {
    varint(out, static_cast<std::uint64_t>(tag) << 3);
    varint(out, static_cast<std::uint64_t>(value));
  }
  static void field(std::string& out, int tag, const std::string& bytes) {
    varint(out, static_cast<std::uint64_t>(tag) << 3 | 2);
    varint(out, bytes.size());
    out += bytes;
  }
  static void real(std::string& out, int tag, float value) {
    varint(out, static_cast<std::uint64_t>(tag) << 3 | 5);
    out += raw(std::vector<float>{value});
  }
  static void integers(std::string& out, int tag, const std::vector<std::int64_t>& values,
                       bool packed) {
    std::string list;
    for (const std::int64_t value : values) {
      if (packed)
        varint(list, static_cast<std::uint64_t>(value));
      else
        number(out, tag, value);
    }
    if (packed) field(out, tag, list);
  }
  template <typename T>
  static std::string raw(const std::vector<T>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  static std::string value_info(const std::string& name, const std::vector<std::int64_t>& extents,
                                std::int64_t type = 1) {
    std::string shape;
    for (const std::int64_t extent : extents) {
      std::string dimension;
      number(dimension, 1, extent);
      field(shape, 1, dimension);
    }
    std::string tensor;
    number(tensor, 1, type);
    field(tensor, 2, shape);
    std::string holder;
    field(holder, 1, tensor);
    std::string info;
    field(info, 1, name);
    field(info, 2, holder);
    return info;
  }

  std::string graph_;
};

}  // namespace plimsoll::graph::testing
