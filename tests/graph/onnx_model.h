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
};

class OnnxModel {
 public:
  void input(const std::string& name, const std::vector<std::int64_t>& shape) {
    field(graph_, 11, value_info(name, shape));
  }
  void symbolic_input(const std::string& name, const std::string& symbol) {
    std::string dimension;
    field(dimension, 2, symbol);
    std::string shape;
    field(shape, 1, dimension);
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
  void declare(const std::string& name, const std::vector<std::int64_t>& shape) {
    field(graph_, 13, value_info(name, shape));
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
    field(out, 4, node.kind);
    for (const auto& [key, values] : node.ints) {
      std::string attribute;
      field(attribute, 1, key);
      for (const std::int64_t value : values) number(attribute, 8, value);
      field(out, 5, attribute);
    }
    for (const auto& [key, value] : node.integers) {
      std::string attribute;
      field(attribute, 1, key);
      number(attribute, 3, value);
      field(out, 5, attribute);
    }
    for (const auto& [key, value] : node.strings) {
      std::string attribute;
      field(attribute, 1, key);
      field(attribute, 4, value);
      field(out, 5, attribute);
    }
    for (const std::string& graph : node.graphs) {
      std::string attribute;
      field(attribute, 1, "body");
      field(attribute, 6, graph);
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
  template <typename T>
  static std::string raw(const std::vector<T>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  static std::string value_info(const std::string& name, const std::vector<std::int64_t>& extents) {
    std::string shape;
    for (const std::int64_t extent : extents) {
      std::string dimension;
      number(dimension, 1, extent);
      field(shape, 1, dimension);
    }
    std::string tensor;
    number(tensor, 1, 1);
    field(tensor, 2, shape);
    std::string type;
    field(type, 1, tensor);
    std::string info;
    field(info, 1, name);
    field(info, 2, type);
    return info;
  }

  std::string graph_;
};

}  // namespace plimsoll::graph::testing
