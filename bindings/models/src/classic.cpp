// SPDX-License-Identifier: Apache-2.0
// Convolutional networks without residual stages. Sources: Krizhevsky, "One weird trick for
// parallelizing convolutional neural networks", 2014 (AlexNet as torchvision has it); Simonyan,
// Zisserman, "Very Deep Convolutional Networks", 2014; Huang et al., "Densely Connected
// Convolutional Networks", 2016; Sandler et al., "MobileNetV2", 2018; Ronneberger, Fischer, Brox,
// "U-Net", 2015.
#include <utility>

#include <torch/types.h>

#include "builders.h"

namespace plimsoll::models {
namespace {

BlockPtr conv_relu(ConvOptions options) {
  options.bias = true;
  return chain({conv(options), relu()});
}

// What VGG and AlexNet end with: two hidden layers between dropouts.
BlockPtr hidden_head(std::int64_t features, const Settings& settings, bool dropout_first) {
  const std::int64_t hidden = settings.integer("hidden");
  const double probability = settings.real("dropout");
  const BlockPtr last = linear(hidden, settings.integer("classes"));
  if (dropout_first) {
    return chain({flatten(), dropout(probability), linear(features, hidden), relu(),
                  dropout(probability), linear(hidden, hidden), relu(), last});
  }
  return chain({flatten(), linear(features, hidden), relu(), dropout(probability),
                linear(hidden, hidden), relu(), dropout(probability), last});
}

// One layer of a dense block: its result is joined to everything before it.
class DenseLayer : public Block {
 public:
  DenseLayer(std::int64_t in, std::int64_t growth, double dropout_probability) {
    auto body = std::make_shared<Chain>();
    body->add(batch_norm(in));
    body->add(relu());
    body->add(conv(valid(in, 4 * growth, 1)));
    body->add(batch_norm(4 * growth));
    body->add(relu());
    body->add(conv(same(4 * growth, growth, 3)));
    if (dropout_probability > 0) body->add(dropout(dropout_probability));
    body_ = register_module("body", body);
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return torch::cat({x, body_->forward(x)}, 1);
  }

 private:
  BlockPtr body_;
};

class SkipConnection : public Block {
 public:
  explicit SkipConnection(BlockPtr body) : body_(register_module("body", std::move(body))) {}
  torch::Tensor forward(const torch::Tensor& x) override { return x + body_->forward(x); }

 private:
  BlockPtr body_;
};

BlockPtr inverted_residual(std::int64_t in, std::int64_t out, std::int64_t stride,
                           std::int64_t expansion) {
  const std::int64_t hidden = in * expansion;
  auto body = std::make_shared<Chain>();
  if (expansion != 1) body->add(conv_norm(valid(in, hidden, 1), Activation::kRelu6));
  body->add(conv_norm(same(hidden, hidden, 3, stride, hidden), Activation::kRelu6));
  body->add(conv_norm(valid(hidden, out, 1), Activation::kNone));
  if (stride == 1 && in == out) return std::make_shared<SkipConnection>(body);
  return body;
}

BlockPtr double_conv(std::int64_t in, std::int64_t out) {
  return chain({conv_norm(same(in, out, 3)), conv_norm(same(out, out, 3))});
}

class UNet : public Model {
 public:
  UNet(const InputShape& shape, std::int64_t base, std::int64_t levels, double dropout_probability)
      : Model(shape) {
    std::int64_t in = shape.channels;
    std::int64_t width = base;
    for (std::int64_t level = 0; level < levels; ++level, width *= 2) {
      down_.push_back(register_module("down" + std::to_string(level), double_conv(in, width)));
      in = width;
    }
    bottom_ =
        register_module("bottom", chain({double_conv(in, width), dropout(dropout_probability)}));
    pool_ = max_pool(2, 2);
    for (std::int64_t level = levels; level-- > 0;) {
      width /= 2;
      const std::string suffix = std::to_string(level);
      up_.push_back(register_module("up" + suffix, transposed_conv(2 * width, width, 2, 2)));
      merge_.push_back(register_module("merge" + suffix, double_conv(2 * width, width)));
    }
    ConvOptions last = valid(base, shape.classes, 1);
    last.bias = true;
    last_ = register_module("last", conv(last));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    std::vector<torch::Tensor> skips;
    torch::Tensor x = input;
    for (const BlockPtr& block : down_) {
      skips.push_back(block->forward(x));
      x = pool_->forward(skips.back());
    }
    x = bottom_->forward(x);
    for (std::size_t level = 0; level < up_.size(); ++level) {
      x = torch::cat({skips.back(), up_[level]->forward(x)}, 1);
      skips.pop_back();
      x = merge_[level]->forward(x);
    }
    return last_->forward(x);
  }

 private:
  std::vector<BlockPtr> down_, up_, merge_;
  BlockPtr bottom_, pool_, last_;
};

}  // namespace

std::shared_ptr<Model> build_vgg(const Settings& settings) {
  const std::vector<std::int64_t> convolutions = settings.model() == "vgg11"
                                                     ? std::vector<std::int64_t>{1, 1, 2, 2, 2}
                                                     : std::vector<std::int64_t>{2, 2, 3, 3, 3};
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  std::int64_t in = settings.integer("image-channels");
  std::int64_t width = settings.integer("channels");
  const std::int64_t widest = 8 * width;
  for (const std::int64_t count : convolutions) {
    for (std::int64_t i = 0; i < count; ++i) {
      model->body().add(conv_relu(same(in, width, 3)));
      in = width;
    }
    model->body().add(max_pool(2, 2));
    width = std::min(2 * width, widest);
  }
  model->body().add(adaptive_average_pool(7));
  model->body().add(hidden_head(in * 49, settings, /*dropout_first=*/false));
  initialize_convolutions(*model);
  return model;
}

std::shared_ptr<Model> build_alexnet(const Settings& settings) {
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  const std::int64_t width = settings.integer("channels");
  ConvOptions first = same(settings.integer("image-channels"), width, 11, 4);
  first.padding = {2, 2};
  for (const BlockPtr& block :
       {conv_relu(first), max_pool(3, 2), conv_relu(same(width, 3 * width, 5)), max_pool(3, 2),
        conv_relu(same(3 * width, 6 * width, 3)), conv_relu(same(6 * width, 4 * width, 3)),
        conv_relu(same(4 * width, 4 * width, 3)), max_pool(3, 2), adaptive_average_pool(6),
        hidden_head(4 * width * 36, settings, /*dropout_first=*/true)})
    model->body().add(block);
  initialize_convolutions(*model);
  return model;
}

std::shared_ptr<Model> build_densenet(const Settings& settings) {
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  const std::int64_t growth = settings.integer("growth");
  const double probability = settings.real("dropout");
  std::int64_t channels = settings.integer("channels");
  model->body().add(conv_norm(same(settings.integer("image-channels"), channels, 7, 2)));
  model->body().add(max_pool(3, 2, 1));
  const std::vector<std::int64_t> blocks = settings.list("blocks");
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    auto layers = std::make_shared<Chain>();
    for (std::int64_t layer = 0; layer < blocks[block]; ++layer, channels += growth)
      layers->add(std::make_shared<DenseLayer>(channels, growth, probability));
    model->body().add(layers);
    if (block + 1 == blocks.size()) break;
    model->body().add(chain({batch_norm(channels), relu(), conv(valid(channels, channels / 2, 1)),
                             average_pool(2, 2)}));
    channels /= 2;
  }
  model->body().add(chain({batch_norm(channels), relu()}));
  model->body().add(classifier_head(channels, settings.integer("classes"), 0));
  initialize_convolutions(*model);
  return model;
}

std::shared_ptr<Model> build_mobilenet(const Settings& settings) {
  struct Group {
    std::int64_t expansion, channels, count, stride;
  };
  static constexpr std::array<Group, 7> kGroups = {{{1, 16, 1, 1},
                                                    {6, 24, 2, 2},
                                                    {6, 32, 3, 2},
                                                    {6, 64, 4, 2},
                                                    {6, 96, 3, 1},
                                                    {6, 160, 3, 2},
                                                    {6, 320, 1, 1}}};
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  // `channels` is the stem's width, 32 in the paper; the others keep their ratio to it.
  const std::int64_t stem = settings.integer("channels");
  const auto scaled = [stem](std::int64_t width) {
    return std::max<std::int64_t>(1, width * stem / 32);
  };
  std::int64_t in = stem;
  model->body().add(
      conv_norm(same(settings.integer("image-channels"), stem, 3, 2), Activation::kRelu6));
  for (const Group& group : kGroups) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      model->body().add(inverted_residual(in, scaled(group.channels), i == 0 ? group.stride : 1,
                                          group.expansion));
      in = scaled(group.channels);
    }
  }
  model->body().add(conv_norm(valid(in, scaled(1280), 1), Activation::kRelu6));
  model->body().add(
      classifier_head(scaled(1280), settings.integer("classes"), settings.real("dropout")));
  initialize_convolutions(*model);
  return model;
}

std::shared_ptr<Model> build_unet(const Settings& settings) {
  InputShape shape = image_shape(settings);
  shape.target = TargetKind::kPixel;
  const std::int64_t levels = settings.integer("levels");
  if (shape.image % (std::int64_t{1} << levels) != 0) {
    refuse_settings(settings, "image = " + std::to_string(shape.image) +
                                  " must be a multiple of 2^levels = " +
                                  std::to_string(std::int64_t{1} << levels));
  }
  auto model =
      std::make_shared<UNet>(shape, settings.integer("base"), levels, settings.real("dropout"));
  initialize_convolutions(*model);
  return model;
}

}  // namespace plimsoll::models
