// SPDX-License-Identifier: Apache-2.0
// Shapes of convolutions, pools and resizes.
#include <algorithm>
#include <cmath>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

#include "graph/onnx/rules.h"
#include "graph/onnx/shapes.h"

namespace plimsoll::graph::onnx {
namespace {

// Extents are limited so that products of a few of them stay within 64 bits.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

std::int64_t at_or(const std::vector<std::int64_t>& list, std::size_t i, std::int64_t otherwise) {
  return i < list.size() ? list[i] : otherwise;
}

struct Window {
  std::int64_t in = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t pads = 0;
  std::int64_t output_padding = 0;
};

void check(const Window& w) {
  for (const std::int64_t value : {w.in, w.kernel, w.stride, w.dilation, w.pads}) {
    if (value < 0 || value > kMaxExtent) throw ShapeError(fmt::format("a window with {}", value));
  }
  if (w.kernel == 0 || w.stride == 0 || w.dilation == 0)
    throw ShapeError("a window with a kernel, stride or dilation of 0");
}

struct Channels {
  std::int64_t taken = 0;
  std::int64_t given = 0;
};

Channels channels_of(const Node& node, const Shape& in, const Shape& weight) {
  const std::int64_t group = node.integer("group", 1);
  if (weight.size() != in.size() || group < 1)
    throw ShapeError("a convolution with a weight of another rank or a group below 1");
  const std::int64_t grouped = checked_multiply(weight[1], group);
  if (node.kind == "ConvTranspose") return {weight[0], grouped};
  return {grouped, weight[0]};
}

std::int64_t output_extent(const Window& w, bool ceil_mode, bool same_padding) {
  if (same_padding) return (w.in + w.stride - 1) / w.stride;
  const std::int64_t reach = checked_multiply(w.kernel - 1, w.dilation) + 1;
  const std::int64_t room = w.in + w.pads - reach;
  if (room < 0) throw ShapeError(fmt::format("a window of {} over {}", reach, w.in + w.pads));
  return (room + (ceil_mode ? w.stride - 1 : 0)) / w.stride + 1;
}

std::int64_t transposed_extent(const Window& w, bool same_padding) {
  if (same_padding) return checked_multiply(w.in, w.stride);
  const std::int64_t extent = checked_multiply(w.stride, w.in - 1) + w.output_padding +
                              checked_multiply(w.kernel - 1, w.dilation) + 1 - w.pads;
  if (extent < 0) throw ShapeError("ConvTranspose with more pads than it has extent");
  return extent;
}

}  // namespace

std::optional<Shape> window(const Node& node, const Operands& x) {
  const auto in = x.shape(0);
  if (!in) return std::nullopt;
  if (in->size() < 3) throw ShapeError(fmt::format("{} of rank {}", node.kind, in->size()));
  const bool transposed = node.kind == "ConvTranspose";
  const bool convolution = transposed || node.kind == "Conv";
  const auto weight = x.shape(1);
  Shape kernel = node.integers("kernel_shape");
  if (convolution && !weight) return std::nullopt;
  Channels channels = {(*in)[1], (*in)[1]};
  if (convolution) channels = channels_of(node, *in, *weight);
  if (channels.taken != (*in)[1])
    throw ShapeError(fmt::format("a convolution of {} channels over {}", channels.taken, (*in)[1]));
  if (kernel.empty() && convolution) kernel.assign(weight->begin() + 2, weight->end());
  if (kernel.size() != in->size() - 2) throw ShapeError("a kernel of another rank");
  const auto strides = node.integers("strides");
  const auto dilations = node.integers("dilations");
  const auto pads = node.integers("pads");
  const auto output_padding = node.integers("output_padding");
  const auto output_shape = node.integers("output_shape");
  const Attribute* const auto_pad = node.attribute("auto_pad");
  const bool same = auto_pad != nullptr && auto_pad->text.starts_with("SAME");
  const bool valid = auto_pad != nullptr && auto_pad->text == "VALID";
  Shape out = {(*in)[0], channels.given};
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    Window w = {(*in)[i + 2],           kernel[i], at_or(strides, i, 1),
                at_or(dilations, i, 1), 0,         at_or(output_padding, i, 0)};
    if (!valid && !same) w.pads = checked_add(at_or(pads, i, 0), at_or(pads, i + kernel.size(), 0));
    check(w);
    if (transposed && i < output_shape.size()) {
      out.push_back(output_shape[i]);
    } else {
      out.push_back(transposed ? transposed_extent(w, same)
                               : output_extent(w, node.integer("ceil_mode", 0) != 0, same));
    }
  }
  return out;
}

std::optional<Shape> global_pool(const Node&, const Operands& x) {
  auto out = x.shape(0);
  if (!out) return std::nullopt;
  for (std::size_t i = 2; i < out->size(); ++i) (*out)[i] = 1;
  return out;
}

std::optional<Shape> resize(const Node& node, const Operands& x) {
  auto out = x.shape(0);
  if (!out) return std::nullopt;
  // Sizes are the fourth input since opset 11; scales the third, the second before that.
  if (const auto sizes = x.integers(3); sizes && sizes->size() == out->size()) return sizes;
  std::optional<std::vector<double>> scales = x.reals(2);
  if (!scales || scales->empty()) scales = x.reals(1);
  if (!scales || scales->size() != out->size()) return std::nullopt;
  for (std::size_t i = 0; i < out->size(); ++i) {
    const double extent = std::floor(static_cast<double>((*out)[i]) * (*scales)[i]);
    if (!(extent >= 0) || extent > static_cast<double>(kMaxExtent))
      throw ShapeError(fmt::format("{} by {}", node.kind, (*scales)[i]));
    (*out)[i] = static_cast<std::int64_t>(extent);
  }
  return out;
}

std::optional<Shape> depth_to_space(const Node& node, const Operands& x) {
  auto out = x.shape(0);
  const std::int64_t block = node.integer("blocksize", 0);
  if (!out) return std::nullopt;
  if (out->size() != 4 || block < 1 || block > 1 << 16 || (*out)[1] % (block * block) != 0)
    throw ShapeError("DepthToSpace of channels that are no multiple of the squared block");
  (*out)[1] /= block * block;
  (*out)[2] = checked_multiply((*out)[2], block);
  (*out)[3] = checked_multiply((*out)[3], block);
  return out;
}

std::optional<Shape> space_to_depth(const Node& node, const Operands& x) {
  auto out = x.shape(0);
  const std::int64_t block = node.integer("blocksize", 0);
  if (!out) return std::nullopt;
  if (out->size() != 4 || block < 1 || block > 1 << 16 || (*out)[2] % block != 0 ||
      (*out)[3] % block != 0)
    throw ShapeError("SpaceToDepth of extents that are no multiple of the block");
  (*out)[1] = checked_multiply((*out)[1], block * block);
  (*out)[2] /= block;
  (*out)[3] /= block;
  return out;
}

SliceRange slice_range(std::int64_t extent, std::int64_t start, std::int64_t end,
                       std::int64_t step) {
  if (step == 0) throw ShapeError("Slice with a step of 0");
  const bool back = step < 0;
  const auto clamp = [&](std::int64_t at) {
    // Far beyond either end means the end; adding the extent then cannot overflow.
    if (at < 0 && at >= -extent)
      at += extent;
    else if (at < 0)
      at = -1;
    return back ? std::clamp<std::int64_t>(at, -1, extent - 1)
                : std::clamp<std::int64_t>(at, 0, extent);
  };
  const std::int64_t from = clamp(start);
  const std::int64_t to = clamp(end);
  const std::int64_t length = back ? from - to : to - from;
  const std::int64_t stride = back ? -std::max(step, -kMaxExtent) : step;
  const std::int64_t count = length <= 0 ? 0 : (length - 1) / stride + 1;
  return {from, step, count};
}

}  // namespace plimsoll::graph::onnx
