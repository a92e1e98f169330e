// SPDX-License-Identifier: Apache-2.0
// An ONNX model as parsed: names, shapes, attributes, small constants. Weights' bytes are skipped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::graph::onnx {

using Shape = std::vector<std::int64_t>;

// ONNX's own numbers for element types.
enum ElementType : std::int32_t {
  kUndefined = 0,
  kFloat = 1,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
};

// Bits of one element; 0 for strings and types unknown to us.
int element_bits(std::int32_t type);

struct Tensor {
  std::int32_t type = kUndefined;
  std::optional<Shape> shape;
  // The values of small integer and float tensors, where the file has them.
  std::optional<std::vector<std::int64_t>> integers;
  std::optional<std::vector<double>> reals;
};

struct Attribute {
  std::int64_t integer = 0;
  std::vector<std::int64_t> integers;
  std::string text;
  std::optional<double> real;
  std::optional<Tensor> tensor;
};

struct Node {
  std::string kind;
  std::string name;
  std::string domain;
  std::vector<std::string> inputs;    // "" where an optional one is left out
  std::vector<std::string> outputs;   // "" likewise
  std::vector<std::string> captured;  // names that its sub-graphs take from around it
  std::map<std::string, Attribute, std::less<>> attributes;
  std::size_t byte = 0;  // where it stands in the file

  const Attribute* attribute(std::string_view key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? nullptr : &found->second;
  }
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    const Attribute* found = attribute(key);
    return found == nullptr ? otherwise : found->integer;
  }
  std::vector<std::int64_t> integers(std::string_view key) const {
    const Attribute* found = attribute(key);
    return found == nullptr ? std::vector<std::int64_t>() : found->integers;
  }
};

struct Model {
  std::vector<Node> nodes;
  std::map<std::string, Tensor> initializers;
  std::vector<std::string> inputs;  // without those that are initializers
  std::vector<std::string> outputs;
  std::map<std::string, Tensor> declared;       // of inputs, outputs and value_info
  std::map<std::string, std::string> symbolic;  // tensor -> the symbolic dimension in its shape
};

// Parses a model. Limits: 8 nested graphs, 2^31 elements of names. `dimensions` as in OnnxOptions.
// Errors: InvalidFile with the byte.
Model parse_model(std::string_view bytes, const std::string& file,
                  const std::map<std::string, std::int64_t>& dimensions);

}  // namespace plimsoll::graph::onnx
