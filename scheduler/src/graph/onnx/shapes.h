// SPDX-License-Identifier: Apache-2.0
// Shapes and small constants of what a node writes, from what it reads.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "graph/onnx/model.h"

namespace plimsoll::graph::onnx {

// A node whose operands contradict each other; the reader adds where it stands.
class ShapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns one tensor for each output; shape and values are missing where they do not follow from
// `inputs` (nullptr: left out or unknown). A known value makes the output a constant.
// Errors: ShapeError.
std::vector<Tensor> infer(const Node& node, const std::vector<const Tensor*>& inputs);

// Whether the result may be written over an operand of equal size: each element of it depends on
// no other element of that operand.
bool is_elementwise(std::string_view kind);

// Numpy's rule, as ONNX uses it. Errors: ShapeError.
Shape broadcast(const Shape& a, const Shape& b);

}  // namespace plimsoll::graph::onnx
