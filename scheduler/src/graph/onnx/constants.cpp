// SPDX-License-Identifier: Apache-2.0
// Folding: exporters compute the targets of Reshape and Expand by chains of Shape, Gather, Concat
// and integer arithmetic, all of whose values are known once shapes are.
#include <algorithm>

#include "graph/onnx/rules.h"
#include "graph/onnx/shapes.h"

namespace plimsoll::graph::onnx {
namespace {

using Values = std::vector<std::int64_t>;

// Values of this many elements at most are followed.
constexpr std::size_t kMaxValues = 1024;

Tensor integer_tensor(Shape shape, Values values) {
  Tensor tensor;
  tensor.type = kInt64;
  tensor.shape = std::move(shape);
  tensor.integers = std::move(values);
  return tensor;
}

std::optional<Tensor> fold_constant(const Node& node) {
  if (const Attribute* value = node.attribute("value"); value != nullptr && value->tensor)
    return value->tensor;
  if (const Attribute* value = node.attribute("value_int"))
    return integer_tensor({}, {value->integer});
  if (const Attribute* value = node.attribute("value_ints"))
    return integer_tensor({static_cast<std::int64_t>(value->integers.size())}, value->integers);
  if (const Attribute* value = node.attribute("value_float"); value != nullptr && value->real) {
    Tensor tensor;
    tensor.type = kFloat;
    tensor.shape.emplace();
    tensor.reals = {*value->real};
    return tensor;
  }
  return std::nullopt;
}

std::optional<Tensor> fold_shape(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  if (!in) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(in->size());
  const auto clamp = [rank](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t begin = clamp(std::max(node.integer("start", 0), -rank));
  const std::int64_t end =
      node.attribute("end") == nullptr ? rank : clamp(std::max(node.integer("end", 0), -rank));
  Values values;
  for (std::int64_t i = begin; i < end; ++i) values.push_back((*in)[static_cast<std::size_t>(i)]);
  return integer_tensor({static_cast<std::int64_t>(values.size())}, values);
}

std::optional<Tensor> fold_gather(const Node& node, const Operands& x) {
  const auto values = x.integers(0);
  const auto indices = x.integers(1);
  if (!values || !indices || !x.shape(0) || x.shape(0)->size() != 1 || !x.shape(1) ||
      axis_of(node.integer("axis", 0), 1) != 0)
    return std::nullopt;
  Values out;
  for (const std::int64_t index : *indices)
    out.push_back((*values)[axis_of(index, values->size())]);
  return integer_tensor(*x.shape(1), out);
}

std::optional<Tensor> fold_concat(const Node&, const Operands& x) {
  Values out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto part = x.integers(i);
    if (!part || !x.shape(i) || x.shape(i)->size() != 1) return std::nullopt;
    out.insert(out.end(), part->begin(), part->end());
    if (out.size() > kMaxValues) return std::nullopt;
  }
  return integer_tensor({static_cast<std::int64_t>(out.size())}, out);
}

std::optional<Tensor> fold_slice(const Node& node, const Operands& x) {
  const auto values = x.integers(0);
  const auto starts = list_of(node, x, "starts", 1);
  const auto ends = list_of(node, x, "ends", 2);
  const auto steps = list_of(node, x, "steps", 4);
  if (!values || !x.shape(0) || x.shape(0)->size() != 1 || !starts || !ends ||
      starts->size() != 1 || ends->size() != 1 || (x.has(4) && (!steps || steps->size() != 1)))
    return std::nullopt;
  const SliceRange range = slice_range(static_cast<std::int64_t>(values->size()), (*starts)[0],
                                       (*ends)[0], steps ? (*steps)[0] : 1);
  Values out;
  for (std::int64_t i = 0; i < range.count; ++i)
    out.push_back((*values)[static_cast<std::size_t>(range.begin + i * range.step)]);
  return integer_tensor({range.count}, out);
}

// Reshape, Unsqueeze, Squeeze, Cast, Identity: the same values under a new label.
std::optional<Tensor> fold_relabelled(const Node& node, const Operands& x) {
  const auto values = x.integers(0);
  if (!values || !x.shape(0)) return std::nullopt;
  const bool plain = node.kind == "Cast" || node.kind == "Identity";
  if (plain) return integer_tensor(*x.shape(0), *values);
  // Only between a scalar and lists: all that shape arithmetic does.
  const bool to_list = node.kind == "Unsqueeze" && x.shape(0)->empty();
  const bool to_scalar = node.kind == "Squeeze" && values->size() == 1 && x.shape(0)->size() == 1;
  const bool reshaped = node.kind == "Reshape" && x.integers(1) && x.integers(1)->size() == 1;
  if (to_scalar) return integer_tensor({}, *values);
  if (to_list || reshaped)
    return integer_tensor({static_cast<std::int64_t>(values->size())}, *values);
  return std::nullopt;
}

std::optional<Tensor> fold_arithmetic(const Node& node, const Operands& x) {
  const auto a = x.integers(0);
  const auto b = x.integers(1);
  if (!a || !b || a->empty() || b->empty() || !x.shape(0) || !x.shape(1)) return std::nullopt;
  if (a->size() != b->size() && a->size() != 1 && b->size() != 1) return std::nullopt;
  Values out;
  for (std::size_t i = 0; i < std::max(a->size(), b->size()); ++i) {
    const std::int64_t p = (*a)[a->size() == 1 ? 0 : i];
    const std::int64_t q = (*b)[b->size() == 1 ? 0 : i];
    std::int64_t result = 0;
    bool overflows = false;
    if (node.kind == "Add") overflows = __builtin_add_overflow(p, q, &result);
    if (node.kind == "Sub") overflows = __builtin_sub_overflow(p, q, &result);
    if (node.kind == "Mul") overflows = __builtin_mul_overflow(p, q, &result);
    if (node.kind == "Div") {
      if (q == 0 || q == -1) return std::nullopt;
      result = p / q;
    }
    if (overflows) return std::nullopt;
    out.push_back(result);
  }
  return integer_tensor(broadcast(*x.shape(0), *x.shape(1)), out);
}

}  // namespace

std::optional<Tensor> fold(const Node& node, const Operands& x) {
  const std::string_view kind = node.kind;
  if (kind == "Constant") return fold_constant(node);
  if (kind == "Shape") return fold_shape(node, x);
  if (kind == "Size" && x.shape(0)) return integer_tensor({}, {element_count(*x.shape(0))});
  if (kind == "Gather") return fold_gather(node, x);
  if (kind == "Concat") return fold_concat(node, x);
  if (kind == "Slice") return fold_slice(node, x);
  if (kind == "Reshape" || kind == "Unsqueeze" || kind == "Squeeze" || kind == "Cast" ||
      kind == "Identity")
    return fold_relabelled(node, x);
  if (kind == "Add" || kind == "Sub" || kind == "Mul" || kind == "Div")
    return fold_arithmetic(node, x);
  return std::nullopt;
}

}  // namespace plimsoll::graph::onnx
