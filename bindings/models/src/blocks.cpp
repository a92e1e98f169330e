// SPDX-License-Identifier: Apache-2.0
#include "blocks.h"

#include <utility>

#include <torch/nn.h>

namespace plimsoll::models {
namespace {

namespace nn = torch::nn;

// A LibTorch module with one input as a Block.
template <typename Holder>
class Layer : public Block {
 public:
  Layer(const char* name, Holder layer) : layer_(register_module(name, std::move(layer))) {}
  torch::Tensor forward(const torch::Tensor& x) override { return layer_->forward(x); }

 private:
  Holder layer_;
};

template <typename Holder>
BlockPtr wrap(const char* name, Holder layer) {
  return std::make_shared<Layer<Holder>>(name, std::move(layer));
}

// A function without parameters as a Block.
template <typename Function>
class Stateless : public Block {
 public:
  explicit Stateless(Function function) : function_(std::move(function)) {}
  torch::Tensor forward(const torch::Tensor& x) override { return function_(x); }

 private:
  Function function_;
};

template <typename Function>
BlockPtr stateless(Function function) {
  return std::make_shared<Stateless<Function>>(std::move(function));
}

nn::Conv2d make_conv(const ConvOptions& o) {
  return nn::Conv2d(nn::Conv2dOptions(o.in, o.out, {o.kernel[0], o.kernel[1]})
                        .stride(o.stride)
                        .padding({o.padding[0], o.padding[1]})
                        .dilation(o.dilation)
                        .groups(o.groups)
                        .bias(o.bias));
}

nn::BatchNorm2d make_norm(std::int64_t channels, double epsilon) {
  return nn::BatchNorm2d(nn::BatchNorm2dOptions(channels).eps(epsilon));
}

class ConvNorm : public Block {
 public:
  ConvNorm(const ConvOptions& options, Activation activation, double epsilon)
      : conv_(register_module("conv", make_conv(options))),
        norm_(register_module("norm", make_norm(options.out, epsilon))),
        activation_(activation) {}
  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = norm_->forward(conv_->forward(x));
    if (activation_ == Activation::kRelu) return torch::relu_(y);
    if (activation_ == Activation::kRelu6) return torch::hardtanh_(y, 0, 6);
    return y;
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
  Activation activation_;
};

}  // namespace

Chain::Chain(std::initializer_list<BlockPtr> blocks) {
  for (const BlockPtr& block : blocks) add(block);
}

void Chain::add(const BlockPtr& block) {
  blocks_.push_back(register_module(std::to_string(blocks_.size()), block));
}

torch::Tensor Chain::forward(const torch::Tensor& x) {
  torch::Tensor y = x;
  for (const BlockPtr& block : blocks_) y = block->forward(y);
  return y;
}

BlockPtr chain(std::initializer_list<BlockPtr> blocks) { return std::make_shared<Chain>(blocks); }

Concat::Concat(std::initializer_list<BlockPtr> branches) {
  for (const BlockPtr& branch : branches)
    branches_.push_back(register_module("branch" + std::to_string(branches_.size()), branch));
}

torch::Tensor Concat::forward(const torch::Tensor& x) {
  std::vector<torch::Tensor> parts;
  parts.reserve(branches_.size());
  for (const BlockPtr& branch : branches_) parts.push_back(branch->forward(x));
  return torch::cat(parts, 1);
}

BlockPtr concat(std::initializer_list<BlockPtr> branches) {
  return std::make_shared<Concat>(branches);
}

BlockPtr conv(const ConvOptions& options) { return wrap("conv", make_conv(options)); }

ConvOptions same(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                 std::int64_t groups) {
  return {.in = in,
          .out = out,
          .kernel = {kernel, kernel},
          .stride = stride,
          .padding = {kernel / 2, kernel / 2},
          .groups = groups};
}

ConvOptions valid(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return {.in = in, .out = out, .kernel = {kernel, kernel}, .stride = stride};
}

BlockPtr conv_norm(const ConvOptions& options, Activation activation, double epsilon) {
  return std::make_shared<ConvNorm>(options, activation, epsilon);
}

BlockPtr transposed_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                         std::int64_t stride) {
  return wrap("conv",
              nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, out, kernel).stride(stride)));
}

BlockPtr batch_norm(std::int64_t channels, double epsilon) {
  return wrap("norm", make_norm(channels, epsilon));
}

BlockPtr layer_norm(std::int64_t features) {
  return wrap("norm", nn::LayerNorm(nn::LayerNormOptions({features})));
}

BlockPtr relu() {
  return stateless([](torch::Tensor x) { return torch::relu_(x); });
}

BlockPtr relu_out_of_place() {
  return stateless([](const torch::Tensor& x) { return torch::relu(x); });
}

BlockPtr gelu() {
  return stateless([](const torch::Tensor& x) { return torch::gelu(x); });
}

BlockPtr max_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return stateless([=](const torch::Tensor& x) {
    return torch::max_pool2d(x, {kernel, kernel}, {stride, stride}, {padding, padding});
  });
}

BlockPtr average_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return stateless([=](const torch::Tensor& x) {
    return torch::avg_pool2d(x, {kernel, kernel}, {stride, stride}, {padding, padding},
                             /*ceil_mode=*/false, /*count_include_pad=*/false);
  });
}

BlockPtr adaptive_average_pool(std::int64_t size) {
  return stateless(
      [=](const torch::Tensor& x) { return torch::adaptive_avg_pool2d(x, {size, size}); });
}

BlockPtr linear(std::int64_t in, std::int64_t out, bool bias) {
  return wrap("linear", nn::Linear(nn::LinearOptions(in, out).bias(bias)));
}

BlockPtr dropout(double probability) { return wrap("dropout", nn::Dropout(probability)); }

BlockPtr flatten() {
  return stateless([](const torch::Tensor& x) { return torch::flatten(x, 1); });
}

BlockPtr identity() {
  return stateless([](const torch::Tensor& x) { return x; });
}

BlockPtr classifier_head(std::int64_t channels, std::int64_t classes, double dropout_probability) {
  auto head = std::make_shared<Chain>();
  head->add(adaptive_average_pool(1));
  head->add(flatten());
  if (dropout_probability > 0) head->add(dropout(dropout_probability));
  head->add(linear(channels, classes));
  return head;
}

torch::Tensor drop_path(const torch::Tensor& x, double probability, bool is_training) {
  if (!is_training || probability <= 0) return x;
  const double keep = 1 - probability;
  const torch::Tensor mask = torch::empty({x.size(0), 1, 1, 1}, x.options()).bernoulli_(keep);
  return x / keep * mask;
}

void initialize_convolutions(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (const auto& child : module.modules()) {
    if (auto* conv = child->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      if (conv->bias.defined()) nn::init::zeros_(conv->bias);
    }
  }
}

void initialize_transformer(torch::nn::Module& module, double deviation) {
  torch::NoGradGuard no_grad;
  for (const auto& child : module.modules()) {
    if (auto* linear = child->as<nn::Linear>()) {
      nn::init::normal_(linear->weight, 0, deviation);
      if (linear->bias.defined()) nn::init::zeros_(linear->bias);
    } else if (auto* embedding = child->as<nn::Embedding>()) {
      nn::init::normal_(embedding->weight, 0, deviation);
    }
  }
}

}  // namespace plimsoll::models
