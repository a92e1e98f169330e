// SPDX-License-Identifier: Apache-2.0
// Graphs of any size for tests and measurements of the solvers; the same arguments give the same
// graph.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/graph.h"

namespace plimsoll::order::testing {

// One training step of a pre-activation bottleneck ResNet with about `ops` operators: forward,
// backward with accumulated gradients, and an update for every weight.
class ResNetTrainingGraph {
 public:
  explicit ResNetTrainingGraph(std::int64_t ops) : blocks_((ops - 10) / 34) {}

  graph::Graph make() {
    Tensor x{builder_.add_tensor(kMap, graph::ValueKind::kInput), kMap};
    x = layer("conv", x, kMap, kMap / 64);
    for (std::int64_t b = 0; b < blocks_; ++b) {
      const Tensor in = x;
      x = layer("conv", norm(in), kMap / 4, kMap / 128);
      x = layer("conv", norm(x), kMap / 4, kMap / 64);
      x = layer("conv", norm(x), kMap, kMap / 128);
      x = add(in, x);
    }
    Tensor gradient{run("loss", {x.value}, x.bytes), x.bytes};
    while (!tape_.empty()) {
      const Step step = tape_.back();
      tape_.pop_back();
      gradient = backward(step, gradient);
    }
    return builder_.build();
  }

 private:
  static constexpr std::int64_t kMap = 1 << 20;
  struct Tensor {
    graph::ValueId value;
    std::int64_t bytes = 0;
  };
  enum class Kind : std::uint8_t { kLayer, kInPlace, kFork, kJoin };
  struct Step {
    Kind kind = Kind::kLayer;
    Tensor saved;
    std::int64_t in_bytes = 0;
    std::int64_t weight_bytes = 0;
  };

  graph::ValueId run(const char* kind, std::vector<graph::ValueId> operands, std::int64_t bytes,
                     bool inplace = false) {
    graph::OpSpec spec;
    spec.kind = kind;
    spec.operands = std::move(operands);
    spec.results = {builder_.add_tensor(bytes)};
    if (inplace) spec.inplace_operand = spec.operands[0];
    builder_.add_op(spec);
    return spec.results[0];
  }

  // Saves its input.
  Tensor layer(const char* kind, Tensor in, std::int64_t bytes, std::int64_t weight_bytes) {
    tape_.push_back({Kind::kLayer, in, in.bytes, weight_bytes});
    return {run(kind, {in.value}, bytes), bytes};
  }

  // BatchNorm saves its input, ReLU its output.
  Tensor norm(Tensor in) {
    const Tensor normed = layer("bn", in, in.bytes, 4096);
    const Tensor out{run("relu", {normed.value}, in.bytes, true), in.bytes};
    tape_.push_back({Kind::kInPlace, out, in.bytes, 0});
    return out;
  }

  Tensor add(Tensor in, Tensor branch) {
    // Read backwards: at the join the gradient goes both ways, at the fork the two are added.
    const std::size_t begin = tape_.size() - 9;
    tape_.insert(tape_.begin() + static_cast<std::ptrdiff_t>(begin),
                 {Kind::kFork, in, in.bytes, 0});
    tape_.push_back({Kind::kJoin, in, in.bytes, 0});
    return {run("add", {in.value, branch.value}, in.bytes, true), in.bytes};
  }

  Tensor backward(const Step& step, Tensor gradient) {
    if (step.kind == Kind::kJoin) {
      skips_.push_back({run("bgadd", {gradient.value}, gradient.bytes), gradient.bytes});
      return {run("bgadd", {gradient.value}, gradient.bytes, true), gradient.bytes};
    }
    if (step.kind == Kind::kFork) {
      const Tensor skip = skips_.back();
      skips_.pop_back();
      return {run("gacc", {gradient.value, skip.value}, gradient.bytes, true), gradient.bytes};
    }
    if (step.kind == Kind::kInPlace)
      return {run("bgrelu", {gradient.value, step.saved.value}, gradient.bytes, true),
              gradient.bytes};
    const graph::ValueId weight = run("wg", {gradient.value, step.saved.value}, step.weight_bytes);
    run("update", {weight}, 0);
    return {run("bg", {gradient.value, step.saved.value}, step.in_bytes), step.in_bytes};
  }

  std::int64_t blocks_;
  graph::GraphBuilder builder_;
  std::vector<Step> tape_;
  std::vector<Tensor> skips_;
};

inline graph::Graph resnet_training(std::int64_t ops) { return ResNetTrainingGraph(ops).make(); }

// Layers of `width` operators, each reading one to three results of the layer before and now and
// then one of much earlier.
inline graph::Graph wide_layers(std::int64_t ops, std::int64_t width, std::uint32_t seed) {
  std::mt19937 random(seed);
  graph::GraphBuilder builder;
  std::vector<graph::ValueId> all;
  for (std::int64_t i = 0; i < ops; ++i) {
    graph::OpSpec spec;
    spec.kind = "op";
    const std::int64_t layer = i / width;
    for (std::uint32_t k = random() % 3 + 1; layer > 0 && k > 0; --k)
      spec.operands.push_back(all[(layer - 1) * width + random() % width]);
    if (layer > 1 && random() % 8 == 0) spec.operands.push_back(all[random() % (layer * width)]);
    spec.results = {builder.add_tensor(1 + random() % 1000)};
    builder.add_op(spec);
    all.push_back(spec.results[0]);
  }
  return builder.build();
}

// One chain.
inline graph::Graph deep_chain(std::int64_t ops) {
  graph::GraphBuilder builder;
  graph::ValueId last = builder.add_tensor(64, graph::ValueKind::kInput);
  for (std::int64_t i = 0; i < ops; ++i) {
    graph::OpSpec spec;
    spec.kind = "op";
    spec.operands = {last};
    spec.results = {builder.add_tensor(64 + i % 7)};
    builder.add_op(spec);
    last = spec.results[0];
  }
  return builder.build();
}

}  // namespace plimsoll::order::testing
