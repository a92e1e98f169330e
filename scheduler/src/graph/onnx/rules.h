// SPDX-License-Identifier: Apache-2.0
// The parts that shape inference is made of.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/onnx/model.h"

namespace plimsoll::graph::onnx {

// What a node reads, each part of it possibly unknown.
class Operands {
 public:
  explicit Operands(const std::vector<const Tensor*>& tensors) : tensors_(tensors) {}
  std::size_t size() const { return tensors_.size(); }
  bool has(std::size_t i) const { return i < tensors_.size() && tensors_[i] != nullptr; }
  std::int32_t type(std::size_t i) const { return has(i) ? tensors_[i]->type : kUndefined; }
  std::optional<Shape> shape(std::size_t i) const;
  std::optional<std::vector<std::int64_t>> integers(std::size_t i) const;
  std::optional<std::vector<double>> reals(std::size_t i) const;

 private:
  const std::vector<const Tensor*>& tensors_;
};

inline constexpr std::array<std::string_view, 40> kUnary = {
    "Relu",        "LeakyRelu", "Elu",
    "Selu",        "Celu",      "Sigmoid",
    "HardSigmoid", "Tanh",      "Exp",
    "Log",         "Sqrt",      "Neg",
    "Abs",         "Floor",     "Ceil",
    "Round",       "Sign",      "Erf",
    "Reciprocal",  "Softplus",  "Softsign",
    "Clip",        "Not",       "HardSwish",
    "Mish",        "Gelu",      "Swish",
    "Sin",         "Cos",       "Tan",
    "Asin",        "Acos",      "Atan",
    "Sinh",        "Cosh",      "Asinh",
    "Acosh",       "Atanh",     "ThresholdedRelu",
    "Shrink"};
inline constexpr std::array<std::string_view, 17> kShapeKeeping = {"Identity",
                                                                   "Dropout",
                                                                   "BatchNormalization",
                                                                   "InstanceNormalization",
                                                                   "LayerNormalization",
                                                                   "GroupNormalization",
                                                                   "LRN",
                                                                   "LpNormalization",
                                                                   "Softmax",
                                                                   "LogSoftmax",
                                                                   "Hardmax",
                                                                   "Cast",
                                                                   "CumSum",
                                                                   "Trilu",
                                                                   "ScatterElements",
                                                                   "ScatterND",
                                                                   "MeanVarianceNormalization"};
inline constexpr std::array<std::string_view, 13> kBroadcasting = {
    "Add", "Sub", "Mul",  "Div", "Pow",   "Mod",     "PRelu",
    "Max", "Min", "Mean", "Sum", "Where", "BitShift"};
inline constexpr std::array<std::string_view, 9> kComparing = {
    "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "IsNaN"};
inline constexpr std::array<std::string_view, 10> kReducing = {
    "ReduceMean", "ReduceSum", "ReduceMax",    "ReduceMin",       "ReduceProd",
    "ReduceL1",   "ReduceL2",  "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};
inline constexpr std::array<std::string_view, 5> kWindowed = {"Conv", "ConvTranspose", "MaxPool",
                                                              "AveragePool", "LpPool"};
inline constexpr std::array<std::string_view, 3> kGlobalPools = {"GlobalAveragePool",
                                                                 "GlobalMaxPool", "GlobalLpPool"};

// Errors of all below: ShapeError.
std::size_t axis_of(std::int64_t axis, std::size_t rank);
std::int64_t element_count(const Shape& shape);
// A list that is an attribute in older opsets and an input in newer ones.
std::optional<std::vector<std::int64_t>> list_of(const Node& node, const Operands& operands,
                                                 std::string_view key, std::size_t input);

struct SliceRange {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};
SliceRange slice_range(std::int64_t extent, std::int64_t start, std::int64_t end,
                       std::int64_t step);

std::optional<Shape> window(const Node& node, const Operands& x);
std::optional<Shape> global_pool(const Node& node, const Operands& x);
std::optional<Shape> resize(const Node& node, const Operands& x);
std::optional<Shape> depth_to_space(const Node& node, const Operands& x);
std::optional<Shape> space_to_depth(const Node& node, const Operands& x);

// The node's first output, where its values are known when the model is read.
std::optional<Tensor> fold(const Node& node, const Operands& x);

}  // namespace plimsoll::graph::onnx
