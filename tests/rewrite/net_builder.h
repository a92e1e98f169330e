// SPDX-License-Identifier: Apache-2.0
// Small convolution nets for tests of rewriting, with shapes and weight seeds, forward and
// backward.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/graph/builder.h"

namespace plimsoll::rewrite::testing {

using graph::Graph;
using graph::OpId;
using graph::ValueId;
using graph::ValueKind;

// Feature maps are [1, channels, side, side] fp32; every convolution keeps the side.
class NetBuilder {
 public:
  explicit NetBuilder(std::int64_t side) : side_(side) {}

  ValueId input(std::int64_t channels) { return map(channels, ValueKind::kInput, false); }
  ValueId conv(ValueId x, std::int64_t channels, std::int64_t kernel, bool bias = false) {
    return op("Conv", {x}, channels,
              {{"group", {1}}, {"kernel", {kernel}}, {"seed", {next_seed_++}}, {"bias", {bias}}});
  }
  ValueId depthwise(ValueId x, std::int64_t kernel) {
    return op("Conv", {x}, channels_of(x),
              {{"group", {channels_of(x)}},
               {"kernel", {kernel}},
               {"seed", {next_seed_++}},
               {"bias", {0}}});
  }
  ValueId relu(ValueId x) { return op("Relu", {x}, channels_of(x), {}); }
  ValueId add(ValueId x, ValueId y) { return op("Add", {x, y}, channels_of(x), {}); }
  ValueId concat(const std::vector<ValueId>& xs) {
    std::int64_t channels = 0;
    for (const ValueId x : xs) channels += channels_of(x);
    return op("Concat", xs, channels, {{"axis", {1}}});
  }
  ValueId concat_conv(const std::vector<ValueId>& xs, std::int64_t channels, std::int64_t kernel) {
    return op("ConcatConv", xs, channels,
              {{"group", {1}}, {"kernel", {kernel}}, {"seed", {next_seed_++}}, {"bias", {1}}});
  }
  // The gradient of conv(x, seed) for x, from the gradient of its result.
  ValueId data_gradient(ValueId dy, std::int64_t channels, std::int64_t kernel, std::int64_t seed) {
    return op("ConvBackwardData", {dy}, channels,
              {{"group", {1}}, {"kernel", {kernel}}, {"seed", {seed}}});
  }
  // The gradient for the weight, of [channels of dy, channels of x, kernel, kernel].
  ValueId weight_gradient(ValueId x, ValueId dy, std::int64_t kernel) {
    const std::vector<std::int64_t> shape = {channels_of(dy), channels_of(x), kernel, kernel};
    const ValueId w = tensor(shape, ValueKind::kGradient, false);
    builder_.add_op({.kind = "ConvBackwardWeight",
                     .operands = {x, dy},
                     .results = {w},
                     .phase = graph::Phase::kBackward,
                     .attributes = {{"group", {1}}, {"kernel", {kernel}}}});
    return w;
  }
  std::vector<ValueId> split(ValueId x, const std::vector<std::int64_t>& channels) {
    std::vector<ValueId> parts;
    for (const std::int64_t width : channels)
      parts.push_back(map(width, ValueKind::kActivation, false));
    builder_.add_op(
        {.kind = "Split", .operands = {x}, .results = parts, .attributes = {{"axis", {1}}}});
    return parts;
  }
  // Reads `x` and keeps nothing: makes it an output in all but its lifetime.
  void sink(const std::vector<ValueId>& xs) {
    builder_.add_op({.kind = "Sink", .operands = xs, .flags = graph::kSideEffect});
  }
  std::int64_t last_seed() const { return next_seed_ - 1; }
  Graph build() { return builder_.build(); }

 private:
  ValueId tensor(const std::vector<std::int64_t>& shape, ValueKind kind, bool stays) {
    std::int64_t bytes = 4;
    for (const std::int64_t extent : shape) bytes *= extent;
    const ValueId v = builder_.add_value(
        {.storage = builder_.add_storage({.size_bytes = bytes, .live_at_end = stays}),
         .kind = kind,
         .data_type = graph::DataType::kFloat32,
         .shape = shape});
    channels_.push_back(shape[1]);
    return v;
  }
  ValueId map(std::int64_t channels, ValueKind kind, bool stays) {
    return tensor({1, channels, side_, side_}, kind, stays);
  }
  std::int64_t channels_of(ValueId v) const { return channels_[v.index()]; }
  ValueId op(const char* kind, const std::vector<ValueId>& operands, std::int64_t channels,
             std::vector<std::pair<std::string, std::vector<std::int64_t>>> attributes) {
    const ValueId y = map(channels, ValueKind::kActivation, false);
    graph::OpSpec spec;
    spec.kind = kind;
    spec.operands = operands;
    spec.results = {y};
    spec.attributes = std::move(attributes);
    builder_.add_op(spec);
    return y;
  }

  std::int64_t side_;
  std::int64_t next_seed_ = 1;
  std::vector<std::int64_t> channels_;
  graph::GraphBuilder builder_;
};

}  // namespace plimsoll::rewrite::testing
