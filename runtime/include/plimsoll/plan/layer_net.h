// SPDX-License-Identifier: Apache-2.0
// A network as a list of layers, the form in which SuperNeurons' paper speaks of memory.
//
// Nouns: Layer, LayerNet.
//
//     batch -> CONV -> BN -> ACT -> POOL -> FORK -+-> CONV -> ... -> JOIN -> ACT -> ...
//                                                 +---------------->
// Layers stand in execution order; the backward pass is the same list from the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::plan {

enum class LayerKind : std::uint8_t {
  kConvolution,
  kFullyConnected,
  kBatchNorm,
  kActivation,
  kLocalResponseNorm,
  kPool,
  kDropout,
  kSoftmax,
  kFork,  // one copy of its input per successor
  kJoin,  // the sum of its inputs
};

// "CONV", "FC", "BN", "ACT", "LRN", "POOL", "DROP", "SOFTMAX", "FORK", "JOIN".
std::string_view layer_kind_name(LayerKind kind);

// Elements of one sample.
struct Shape {
  std::int64_t channels = 0;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t elements() const { return channels * height * width; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

struct Layer {
  LayerKind kind = LayerKind::kActivation;
  std::string name = {};
  std::vector<int> inputs = {};  // indices of earlier layers; -1 is the batch
  Shape in = {};                 // of its first input
  Shape out = {};
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};

// Grows by one layer a call; every call returns the new layer's index, to be given as an input of
// later ones. All elements are fp32. Single owner while it grows, then immutable.
// Errors: InvalidArgument where a shape becomes empty or a byte count leaves 64 bits.
class LayerNet {
 public:
  LayerNet(std::string name, std::int64_t batch, const Shape& image);

  int convolution(int input, std::int64_t channels, std::int64_t kernel, std::int64_t stride = 1,
                  std::int64_t padding = 0);
  int pool(int input, std::int64_t kernel, std::int64_t stride);  // rounds down, as the paper does
  int fully_connected(int input, std::int64_t channels);
  // kBatchNorm, kActivation, kLocalResponseNorm, kDropout, kSoftmax, kFork.
  int same_shape(LayerKind kind, int input);
  int join(int first, int second);

  const std::string& name() const { return name_; }
  std::int64_t batch() const { return batch_; }
  const Shape& image() const { return image_; }
  const std::vector<Layer>& layers() const { return layers_; }
  // Indices of the layers that read `layer`'s output, ascending. Cost: O(1).
  const std::vector<int>& successors(int layer) const { return successors_[std::size_t(layer)]; }
  // Of the whole batch.
  std::int64_t output_bytes(int layer) const;
  std::int64_t input_bytes(int layer) const;
  std::int64_t parameter_bytes(int layer) const;
  // Multiply-adds count two.
  double forward_flops(int layer) const;
  // Layers as the paper counts them: one more, the layer that supplies the batch.
  std::size_t paper_layer_count() const { return layers_.size() + 1; }

 private:
  int add(Layer layer);
  Shape shape_of(int layer) const { return layer < 0 ? image_ : layers_[std::size_t(layer)].out; }

  std::string name_;
  std::int64_t batch_;
  Shape image_;
  std::vector<Layer> layers_;
  std::vector<std::vector<int>> successors_;
};

// Makes a net from "alexnet", "vgg16", "resnet50", "resnet101", "resnet152" or
// "resnet:stages=6-32-100-6", each optionally with ":image=227,classes=1000" (keys separated by
// commas); `default_image` is the side of the square input where none is given. The shapes are the
// paper's: AlexNet's first convolution has no padding, ResNet's stride stands on the first 1x1.
// Errors: InvalidArgument for unknown names and keys, a batch below 1, images too small.
LayerNet make_layer_net(std::string_view description, std::int64_t batch,
                        std::int64_t default_image = 227);

// The names make_layer_net knows, for messages and help.
std::string_view layer_net_names();

}  // namespace plimsoll::plan
