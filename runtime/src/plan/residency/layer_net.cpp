// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/layer_net.h"

#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::plan {
namespace {

constexpr std::int64_t kElementBytes = 4;

std::int64_t batch_bytes(std::int64_t batch, const Shape& shape) {
  const std::int64_t plane = checked_multiply(shape.height, shape.width);
  const std::int64_t elements = checked_multiply(shape.channels, plane);
  return checked_multiply(checked_multiply(batch, elements), kElementBytes);
}

}  // namespace

std::string_view layer_kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConvolution:
      return "CONV";
    case LayerKind::kFullyConnected:
      return "FC";
    case LayerKind::kBatchNorm:
      return "BN";
    case LayerKind::kActivation:
      return "ACT";
    case LayerKind::kLocalResponseNorm:
      return "LRN";
    case LayerKind::kPool:
      return "POOL";
    case LayerKind::kDropout:
      return "DROP";
    case LayerKind::kSoftmax:
      return "SOFTMAX";
    case LayerKind::kFork:
      return "FORK";
    case LayerKind::kJoin:
      return "JOIN";
  }
  return "?";
}

LayerNet::LayerNet(std::string name, std::int64_t batch, const Shape& image)
    : name_(std::move(name)), batch_(batch), image_(image) {
  if (batch < 1)
    throw InvalidArgument(
        fmt::format("the batch of {} is {}; it must be at least 1", name_, batch));
  batch_bytes(batch, image);
}

int LayerNet::add(Layer layer) {
  const int index = static_cast<int>(layers_.size());
  layer.in = shape_of(layer.inputs.front());
  layer.name = fmt::format("{}{}", layer_kind_name(layer.kind), index);
  if (layer.out.height < 1 || layer.out.width < 1)
    throw InvalidArgument(
        fmt::format("{}: the image of {}x{} is too small: nothing is left after {}", name_,
                    image_.height, image_.width, layer.name));
  batch_bytes(batch_, layer.out);
  for (const int input : layer.inputs)
    if (input >= 0) successors_[std::size_t(input)].push_back(index);
  layers_.push_back(std::move(layer));
  successors_.emplace_back();
  return index;
}

int LayerNet::convolution(int input, std::int64_t channels, std::int64_t kernel,
                          std::int64_t stride, std::int64_t padding) {
  const Shape in = shape_of(input);
  Layer layer{.kind = LayerKind::kConvolution, .name = {}, .inputs = {input}};
  layer.kernel = kernel;
  layer.stride = stride;
  layer.padding = padding;
  const auto side = [&](std::int64_t length) {
    const std::int64_t slack = length + 2 * padding - kernel;
    return slack < 0 ? 0 : slack / stride + 1;
  };
  layer.out = {channels, side(in.height), side(in.width)};
  return add(std::move(layer));
}

int LayerNet::pool(int input, std::int64_t kernel, std::int64_t stride) {
  const Shape in = shape_of(input);
  Layer layer{.kind = LayerKind::kPool, .name = {}, .inputs = {input}};
  layer.kernel = kernel;
  layer.stride = stride;
  const auto side = [&](std::int64_t length) {
    return length < kernel ? 0 : (length - kernel) / stride + 1;
  };
  layer.out = {in.channels, side(in.height), side(in.width)};
  return add(std::move(layer));
}

int LayerNet::fully_connected(int input, std::int64_t channels) {
  Layer layer{.kind = LayerKind::kFullyConnected, .name = {}, .inputs = {input}};
  layer.out = {channels, 1, 1};
  return add(std::move(layer));
}

int LayerNet::same_shape(LayerKind kind, int input) {
  Layer layer{.kind = kind, .name = {}, .inputs = {input}};
  layer.out = shape_of(input);
  return add(std::move(layer));
}

int LayerNet::join(int first, int second) {
  if (!(shape_of(first) == shape_of(second)))
    throw InvalidArgument(fmt::format("{}: a JOIN's inputs differ in shape", name_));
  Layer layer{.kind = LayerKind::kJoin, .name = {}, .inputs = {first, second}};
  layer.out = shape_of(first);
  return add(std::move(layer));
}

std::int64_t LayerNet::output_bytes(int layer) const {
  return batch_bytes(batch_, layers_[std::size_t(layer)].out);
}

std::int64_t LayerNet::input_bytes(int layer) const {
  return batch_bytes(batch_, layers_[std::size_t(layer)].in);
}

std::int64_t LayerNet::parameter_bytes(int index) const {
  const Layer& layer = layers_[std::size_t(index)];
  switch (layer.kind) {
    case LayerKind::kConvolution:
      return kElementBytes * layer.out.channels *
             (layer.in.channels * layer.kernel * layer.kernel + 1);
    case LayerKind::kFullyConnected:
      return kElementBytes * layer.out.channels * (layer.in.elements() + 1);
    case LayerKind::kBatchNorm:
      return kElementBytes * 2 * layer.out.channels;
    default:
      return 0;
  }
}

double LayerNet::forward_flops(int index) const {
  const Layer& layer = layers_[std::size_t(index)];
  const double out = static_cast<double>(layer.out.elements()) * static_cast<double>(batch_);
  const double in_channels = static_cast<double>(layer.in.channels);
  const double window = static_cast<double>(layer.kernel * layer.kernel);
  switch (layer.kind) {
    case LayerKind::kConvolution:
      return 2 * out * in_channels * window;
    case LayerKind::kFullyConnected:
      return 2 * out * static_cast<double>(layer.in.elements());
    case LayerKind::kPool:
      return out * window;
    case LayerKind::kBatchNorm:
    case LayerKind::kLocalResponseNorm:
      return 8 * out;
    default:
      return out;
  }
}

}  // namespace plimsoll::plan
