// SPDX-License-Identifier: Apache-2.0
// The pieces the zoo is built from: one-input modules behind one base class, so that the models'
// own files need neither LibTorch's layer headers nor their templates.
//
// Nouns: Block (a module with one input and one output), Chain (blocks in a row), Concat (blocks
// side by side whose results are joined along the channels).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace plimsoll::models {

class Block : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
};
using BlockPtr = std::shared_ptr<Block>;

class Chain : public Block {
 public:
  Chain() = default;
  Chain(std::initializer_list<BlockPtr> blocks);
  void add(const BlockPtr& block);
  torch::Tensor forward(const torch::Tensor& x) override;

 private:
  std::vector<BlockPtr> blocks_;
};
BlockPtr chain(std::initializer_list<BlockPtr> blocks);

class Concat : public Block {
 public:
  Concat(std::initializer_list<BlockPtr> branches);
  torch::Tensor forward(const torch::Tensor& x) override;

 private:
  std::vector<BlockPtr> branches_;
};
BlockPtr concat(std::initializer_list<BlockPtr> branches);

struct ConvOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::array<std::int64_t, 2> kernel = {1, 1};
  std::int64_t stride = 1;
  std::array<std::int64_t, 2> padding = {0, 0};
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = false;
};

enum class Activation : std::uint8_t { kNone, kRelu, kRelu6 };

BlockPtr conv(const ConvOptions& options);
// A square convolution that keeps the image's size at stride 1 (kernel odd).
ConvOptions same(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1,
                 std::int64_t groups = 1);
// A square convolution without padding.
ConvOptions valid(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1);
// Convolution, batch normalisation, activation in place.
BlockPtr conv_norm(const ConvOptions& options, Activation activation = Activation::kRelu,
                   double epsilon = 1e-5);
BlockPtr transposed_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                         std::int64_t stride);
BlockPtr batch_norm(std::int64_t channels, double epsilon = 1e-5);
BlockPtr layer_norm(std::int64_t features);
// In place, as the reference implementations have it.
BlockPtr relu();
// On a copy: for inputs that others still read.
BlockPtr relu_out_of_place();
BlockPtr gelu();
BlockPtr max_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0);
// Padding does not count in the mean.
BlockPtr average_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0);
BlockPtr adaptive_average_pool(std::int64_t size);
BlockPtr linear(std::int64_t in, std::int64_t out, bool bias = true);
BlockPtr dropout(double probability);
BlockPtr flatten();
BlockPtr identity();
// Global average pool, dropout (where above 0), linear.
BlockPtr classifier_head(std::int64_t channels, std::int64_t classes, double dropout_probability);

// Zeroes each sample's whole x with the given probability in training and scales the rest.
// Source: Larsson, Maire, Shakhnarovich, "FractalNet", 2017; used by NASNet and DARTS.
torch::Tensor drop_path(const torch::Tensor& x, double probability, bool is_training);

// Kaiming-normal (fan out, ReLU) weights for every convolution, as torchvision's ResNet has them.
// Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015.
void initialize_convolutions(torch::nn::Module& module);
// Normal weights of the given deviation for every linear layer and embedding, zero biases.
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
void initialize_transformer(torch::nn::Module& module, double deviation);

}  // namespace plimsoll::models
