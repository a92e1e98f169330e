// SPDX-License-Identifier: Apache-2.0
// Shape rules by operator, as the public ONNX operator list (opset 7 to 23) states them. Windows
// (convolutions, pools) are in shapes_window.cpp, constants in constants.cpp.
#include "graph/onnx/shapes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_map>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

#include "graph/onnx/rules.h"

namespace plimsoll::graph::onnx {

std::optional<Shape> Operands::shape(std::size_t i) const {
  return has(i) ? tensors_[i]->shape : std::nullopt;
}

std::optional<std::vector<std::int64_t>> Operands::integers(std::size_t i) const {
  return has(i) ? tensors_[i]->integers : std::nullopt;
}

std::optional<std::vector<double>> Operands::reals(std::size_t i) const {
  return has(i) ? tensors_[i]->reals : std::nullopt;
}

std::size_t axis_of(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank)
    throw ShapeError(fmt::format("axis {} of a tensor of rank {}", axis, rank));
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count = checked_multiply(count, extent);
  return count;
}

std::optional<std::vector<std::int64_t>> list_of(const Node& node, const Operands& operands,
                                                 std::string_view key, std::size_t input) {
  if (node.attribute(key) != nullptr) return node.integers(key);
  return operands.integers(input);
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw ShapeError(fmt::format("extents {} and {} do not broadcast", x, y));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

namespace {

using Rule = std::function<std::optional<Shape>(const Node&, const Operands&)>;

std::optional<Shape> same(const Node&, const Operands& x) { return x.shape(0); }

std::optional<Shape> broadcast_all(const Node&, const Operands& x) {
  if (x.size() == 0 || !x.shape(0)) return std::nullopt;
  Shape out = *x.shape(0);
  for (std::size_t i = 1; i < x.size(); ++i) {
    if (!x.shape(i)) return std::nullopt;
    out = broadcast(out, *x.shape(i));
  }
  return out;
}

std::optional<Shape> gemm(const Node& node, const Operands& x) {
  const auto a = x.shape(0);
  const auto b = x.shape(1);
  if (!a || !b) return std::nullopt;
  if (a->size() != 2 || b->size() != 2) throw ShapeError("Gemm of tensors that are no matrices");
  const std::size_t ta = node.integer("transA", 0) != 0 ? 1 : 0;
  const std::size_t tb = node.integer("transB", 0) != 0 ? 1 : 0;
  if ((*a)[1 - ta] != (*b)[tb])
    throw ShapeError(fmt::format("Gemm sums over {} and {}", (*a)[1 - ta], (*b)[tb]));
  return Shape{(*a)[ta], (*b)[1 - tb]};
}

std::optional<Shape> matmul(const Node&, const Operands& x) {
  auto a = x.shape(0);
  auto b = x.shape(1);
  if (!a || !b) return std::nullopt;
  if (a->empty() || b->empty()) throw ShapeError("MatMul of a scalar");
  const bool row = a->size() == 1;
  const bool column = b->size() == 1;
  if (row) a->insert(a->begin(), 1);
  if (column) b->push_back(1);
  if (a->back() != (*b)[b->size() - 2])
    throw ShapeError(fmt::format("MatMul sums over {} and {}", a->back(), (*b)[b->size() - 2]));
  Shape out = broadcast(Shape(a->begin(), a->end() - 2), Shape(b->begin(), b->end() - 2));
  if (!row) out.push_back((*a)[a->size() - 2]);
  if (!column) out.push_back(b->back());
  return out;
}

std::optional<Shape> concat(const Node& node, const Operands& x) {
  if (x.size() == 0 || !x.shape(0)) return std::nullopt;
  Shape out = *x.shape(0);
  const std::size_t axis = axis_of(node.integer("axis", 1), out.size());
  for (std::size_t i = 1; i < x.size(); ++i) {
    const auto part = x.shape(i);
    if (!part) return std::nullopt;
    if (part->size() != out.size()) throw ShapeError("Concat of tensors of different rank");
    for (std::size_t k = 0; k < out.size(); ++k) {
      if (k == axis) {
        out[k] = checked_add(out[k], (*part)[k]);
      } else if (out[k] != (*part)[k]) {
        throw ShapeError(fmt::format("Concat of extents {} and {}", out[k], (*part)[k]));
      }
    }
  }
  return out;
}

std::optional<Shape> reshape(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  const auto target = list_of(node, x, "shape", 1);
  if (!in || !target) return std::nullopt;
  Shape out = *target;
  std::optional<std::size_t> open;
  std::int64_t known = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == 0 && node.integer("allowzero", 0) == 0) {
      if (i >= in->size()) throw ShapeError("Reshape copies an extent that is not there");
      out[i] = (*in)[i];
    }
    if (out[i] == -1 && !open) {
      open = i;
    } else if (out[i] < 0) {
      throw ShapeError(fmt::format("Reshape to an extent of {}", out[i]));
    } else {
      known = checked_multiply(known, out[i]);
    }
  }
  const std::int64_t count = element_count(*in);
  if (open) out[*open] = known == 0 ? 0 : count / known;
  if (element_count(out) != count)
    throw ShapeError(fmt::format("Reshape of {} elements into {}", count, element_count(out)));
  return out;
}

std::optional<Shape> transpose(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  if (!in) return std::nullopt;
  if (node.attribute("perm") == nullptr) return Shape(in->rbegin(), in->rend());
  const auto perm = node.integers("perm");
  if (perm.size() != in->size()) throw ShapeError("Transpose by a permutation of another rank");
  Shape out;
  std::vector<bool> used(in->size(), false);
  for (const std::int64_t axis : perm) {
    const std::size_t from = axis_of(axis, in->size());
    if (used[from]) throw ShapeError("Transpose by what is no permutation");
    used[from] = true;
    out.push_back((*in)[from]);
  }
  return out;
}

std::optional<Shape> unsqueeze(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  const auto axes = list_of(node, x, "axes", 1);
  if (!in || !axes) return std::nullopt;
  const std::size_t rank = in->size() + axes->size();
  std::vector<bool> is_new(rank, false);
  for (const std::int64_t axis : *axes) {
    if (is_new[axis_of(axis, rank)]) throw ShapeError("Unsqueeze names an axis twice");
    is_new[axis_of(axis, rank)] = true;
  }
  Shape out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) out.push_back(is_new[i] ? 1 : (*in)[next++]);
  return out;
}

std::optional<Shape> squeeze(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  if (!in) return std::nullopt;
  std::vector<bool> gone(in->size(), false);
  if (node.attribute("axes") == nullptr && !x.has(1)) {
    for (std::size_t i = 0; i < in->size(); ++i) gone[i] = (*in)[i] == 1;
  } else {
    const auto axes = list_of(node, x, "axes", 1);
    if (!axes) return std::nullopt;
    for (const std::int64_t axis : *axes) gone[axis_of(axis, in->size())] = true;
  }
  Shape out;
  for (std::size_t i = 0; i < in->size(); ++i) {
    if (!gone[i]) out.push_back((*in)[i]);
    if (gone[i] && (*in)[i] != 1) throw ShapeError("Squeeze of an extent other than 1");
  }
  return out;
}

std::optional<Shape> flatten(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  if (!in) return std::nullopt;
  const std::int64_t axis = node.integer("axis", 1);
  const std::size_t at = axis == static_cast<std::int64_t>(in->size()) ? in->size()
                         : in->empty() && axis == 0                    ? 0
                                                                       : axis_of(axis, in->size());
  const auto middle = in->begin() + static_cast<std::ptrdiff_t>(at);
  return Shape{element_count(Shape(in->begin(), middle)), element_count(Shape(middle, in->end()))};
}

std::optional<Shape> reduce(const Node& node, const Operands& x) {
  auto in = x.shape(0);
  if (!in) return std::nullopt;
  const bool keep = node.integer("keepdims", 1) != 0;
  std::vector<bool> gone(in->size(), false);
  const bool given = node.attribute("axes") != nullptr || x.has(1);
  const auto axes = list_of(node, x, "axes", 1);
  if (given && !axes) return std::nullopt;
  if (!given || axes->empty()) {
    if (node.integer("noop_with_empty_axes", 0) != 0) return in;
    gone.assign(in->size(), true);
  } else {
    for (const std::int64_t axis : *axes) gone[axis_of(axis, in->size())] = true;
  }
  Shape out;
  for (std::size_t i = 0; i < in->size(); ++i) {
    if (!gone[i]) out.push_back((*in)[i]);
    if (gone[i] && keep) out.push_back(1);
  }
  return out;
}

std::optional<Shape> arg_reduce(const Node& node, const Operands& x) {
  auto in = x.shape(0);
  if (!in) return std::nullopt;
  const std::size_t axis = axis_of(node.integer("axis", 0), in->size());
  if (node.integer("keepdims", 1) != 0) {
    (*in)[axis] = 1;
  } else {
    in->erase(in->begin() + static_cast<std::ptrdiff_t>(axis));
  }
  return in;
}

std::optional<Shape> slice(const Node& node, const Operands& x) {
  auto out = x.shape(0);
  const auto starts = list_of(node, x, "starts", 1);
  const auto ends = list_of(node, x, "ends", 2);
  if (!out || !starts || !ends) return std::nullopt;
  const bool has_axes = node.attribute("axes") != nullptr || x.has(3);
  const auto axes = list_of(node, x, "axes", 3);
  const auto steps = list_of(node, x, "steps", 4);
  if ((has_axes && !axes) || (x.has(4) && !steps)) return std::nullopt;
  if (starts->size() != ends->size() || (axes && axes->size() != starts->size()) ||
      (steps && steps->size() != starts->size()))
    throw ShapeError("Slice with lists of different lengths");
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const std::size_t axis =
        axis_of(has_axes ? (*axes)[i] : static_cast<std::int64_t>(i), out->size());
    const std::int64_t step = steps ? (*steps)[i] : 1;
    (*out)[axis] = slice_range((*out)[axis], (*starts)[i], (*ends)[i], step).count;
  }
  return out;
}

std::optional<Shape> pad(const Node& node, const Operands& x) {
  auto out = x.shape(0);
  const auto pads = list_of(node, x, "pads", 1);
  if (!out || !pads) return std::nullopt;
  Shape axes;
  if (x.has(3)) {
    if (!x.integers(3)) return std::nullopt;
    axes = *x.integers(3);
  } else {
    for (std::size_t i = 0; i < out->size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (pads->size() != 2 * axes.size()) throw ShapeError("Pad with a wrong number of pads");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::int64_t& extent = (*out)[axis_of(axes[i], out->size())];
    extent = checked_add(checked_add(extent, (*pads)[i]), (*pads)[i + axes.size()]);
    if (extent < 0) throw ShapeError("Pad by less than there is");
  }
  return out;
}

std::optional<Shape> gather(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  const auto indices = x.shape(1);
  if (!in || !indices) return std::nullopt;
  const std::size_t axis = axis_of(node.integer("axis", 0), in->size());
  Shape out(in->begin(), in->begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), in->begin() + static_cast<std::ptrdiff_t>(axis) + 1, in->end());
  return out;
}

std::optional<Shape> expand(const Node&, const Operands& x) {
  const auto in = x.shape(0);
  const auto target = x.integers(1);
  if (!in || !target) return std::nullopt;
  for (const std::int64_t extent : *target) {
    if (extent < 0) throw ShapeError(fmt::format("Expand to an extent of {}", extent));
  }
  return broadcast(*in, *target);
}

std::optional<Shape> tile(const Node&, const Operands& x) {
  auto out = x.shape(0);
  const auto repeats = x.integers(1);
  if (!out || !repeats) return std::nullopt;
  if (repeats->size() != out->size()) throw ShapeError("Tile with a wrong number of repeats");
  for (std::size_t i = 0; i < out->size(); ++i) {
    if ((*repeats)[i] < 0) throw ShapeError("Tile by a negative number");
    (*out)[i] = checked_multiply((*out)[i], (*repeats)[i]);
  }
  return out;
}

std::optional<Shape> second(const Node&, const Operands& x) { return x.shape(1); }

std::optional<Shape> from_values(const Node&, const Operands& x) { return x.integers(0); }

const std::unordered_map<std::string_view, Rule>& rules() {
  static const auto* const kRules = [] {
    auto* table = new std::unordered_map<std::string_view, Rule>;
    for (const std::string_view kind : kUnary) (*table)[kind] = same;
    for (const std::string_view kind : kShapeKeeping) (*table)[kind] = same;
    for (const std::string_view kind : kBroadcasting) (*table)[kind] = broadcast_all;
    for (const std::string_view kind : kComparing) (*table)[kind] = broadcast_all;
    for (const std::string_view kind : kReducing) (*table)[kind] = reduce;
    for (const std::string_view kind : kWindowed) (*table)[kind] = window;
    for (const std::string_view kind : kGlobalPools) (*table)[kind] = global_pool;
    (*table)["Gemm"] = gemm;
    (*table)["MatMul"] = matmul;
    (*table)["Concat"] = concat;
    (*table)["Reshape"] = reshape;
    (*table)["Transpose"] = transpose;
    (*table)["Unsqueeze"] = unsqueeze;
    (*table)["Squeeze"] = squeeze;
    (*table)["Flatten"] = flatten;
    (*table)["ArgMax"] = arg_reduce;
    (*table)["ArgMin"] = arg_reduce;
    (*table)["Slice"] = slice;
    (*table)["Pad"] = pad;
    (*table)["Resize"] = resize;
    (*table)["Upsample"] = resize;
    (*table)["Gather"] = gather;
    (*table)["GatherElements"] = second;
    (*table)["Expand"] = expand;
    (*table)["Tile"] = tile;
    (*table)["ConstantOfShape"] = from_values;
    (*table)["DepthToSpace"] = depth_to_space;
    (*table)["SpaceToDepth"] = space_to_depth;
    return table;
  }();
  return *kRules;
}

std::vector<Tensor> split(const Node& node, const Operands& x) {
  std::vector<Tensor> out(node.outputs.size());
  const auto in = x.shape(0);
  if (!in || out.empty()) return out;
  const std::size_t axis = axis_of(node.integer("axis", 0), in->size());
  const auto count = static_cast<std::int64_t>(out.size());
  const bool given = node.attribute("split") != nullptr || x.has(1);
  const auto parts = list_of(node, x, "split", 1);
  if (given && !parts) return out;
  if (parts && parts->size() != out.size()) throw ShapeError("Split into a wrong number of parts");
  const std::int64_t even = ((*in)[axis] + count - 1) / count;
  std::int64_t left = (*in)[axis];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t part = parts ? (*parts)[i] : std::min(even, left);
    if (part < 0 || part > left) throw ShapeError("Split into more than there is");
    left -= part;
    out[i].shape = in;
    (*out[i].shape)[axis] = part;
  }
  if (left != 0) throw ShapeError("Split leaves something over");
  return out;
}

std::int32_t result_type(const Node& node, const Operands& x) {
  const auto listed = [&node](const auto& kinds) {
    return std::find(kinds.begin(), kinds.end(), node.kind) != kinds.end();
  };
  if (listed(kComparing)) return kBool;
  if (node.kind == "Cast") return static_cast<std::int32_t>(node.integer("to", kUndefined));
  if (node.kind == "Shape" || node.kind == "ArgMax" || node.kind == "ArgMin") return kInt64;
  if (node.kind == "Where") return x.type(1);
  if (node.kind == "ConstantOfShape") {
    const Attribute* const value = node.attribute("value");
    return value != nullptr && value->tensor ? value->tensor->type : std::int32_t{kFloat};
  }
  return x.type(0);
}

}  // namespace

std::vector<Tensor> infer(const Node& node, const std::vector<const Tensor*>& inputs) {
  const Operands operands(inputs);
  std::vector<Tensor> out(node.outputs.size());
  if (out.empty() || (!node.domain.empty() && node.domain != "ai.onnx")) return out;
  if (auto constant = fold(node, operands)) {
    out[0] = std::move(*constant);
    return out;
  }
  const std::int32_t type = result_type(node, operands);
  if (node.kind == "Split") {
    out = split(node, operands);
  } else if (const auto rule = rules().find(node.kind); rule != rules().end()) {
    out[0].shape = rule->second(node, operands);
    // The mask of Dropout, the indices of MaxPool.
    const bool twins = node.kind == "Dropout" || node.kind == "MaxPool";
    if (out.size() > 1 && twins) {
      out[1].shape = out[0].shape;
      out[1].type = node.kind == "Dropout" ? kBool : kInt64;
    }
  }
  for (Tensor& tensor : out) {
    if (tensor.type == kUndefined) tensor.type = type;
  }
  return out;
}

bool is_elementwise(std::string_view kind) {
  const auto listed = [kind](const auto& kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  static constexpr std::array<std::string_view, 7> kRelabelling = {
      "Reshape", "Flatten", "Unsqueeze", "Squeeze", "BatchNormalization", "Dropout", "Identity"};
  // Mean and Sum of several tensors accumulate in a new one.
  return listed(kUnary) || listed(kRelabelling) ||
         (listed(kBroadcasting) && kind != "Mean" && kind != "Sum");
}

}  // namespace plimsoll::graph::onnx
