// SPDX-License-Identifier: Apache-2.0
// Residual networks. Sources: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition",
// 2015; the same, "Identity Mappings in Deep Residual Networks", 2016.
#include <map>
#include <utility>

#include <torch/types.h>

#include "builders.h"

namespace plimsoll::models {
namespace {

// relu(body(x) + shortcut(x)); the sum and its ReLU in place, as in torchvision.
class Residual : public Block {
 public:
  Residual(BlockPtr body, BlockPtr shortcut) : body_(register_module("body", std::move(body))) {
    if (shortcut) shortcut_ = register_module("shortcut", std::move(shortcut));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = body_->forward(x);
    y.add_(shortcut_ ? shortcut_->forward(x) : x);
    return y.relu_();
  }

 private:
  BlockPtr body_;
  BlockPtr shortcut_;
};

// x + body(act(x)), where a changed shape takes the shortcut from the activated x.
class PreactResidual : public Block {
 public:
  PreactResidual(BlockPtr activate, BlockPtr body, BlockPtr shortcut)
      : activate_(register_module("activate", std::move(activate))),
        body_(register_module("body", std::move(body))) {
    if (shortcut) shortcut_ = register_module("shortcut", std::move(shortcut));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor active = activate_->forward(x);
    const torch::Tensor kept = shortcut_ ? shortcut_->forward(active) : x;
    return body_->forward(active).add_(kept);
  }

 private:
  BlockPtr activate_;
  BlockPtr body_;
  BlockPtr shortcut_;
};

struct Shape {
  bool is_bottleneck = true;
  std::vector<std::int64_t> stages;
};

Shape resnet_shape(const Settings& settings) {
  static const std::map<std::string, Shape> kPublished = {
      {"resnet18", {false, {2, 2, 2, 2}}},  {"resnet34", {false, {3, 4, 6, 3}}},
      {"resnet50", {true, {3, 4, 6, 3}}},   {"resnet101", {true, {3, 4, 23, 3}}},
      {"resnet152", {true, {3, 8, 36, 3}}},
  };
  const auto found = kPublished.find(settings.model());
  if (found != kPublished.end()) return found->second;
  return {true, settings.list("stages")};
}

BlockPtr resnet_block(bool is_bottleneck, std::int64_t in, std::int64_t width,
                      std::int64_t stride) {
  const std::int64_t out = is_bottleneck ? 4 * width : width;
  BlockPtr shortcut;
  if (stride != 1 || in != out) shortcut = conv_norm(valid(in, out, 1, stride), Activation::kNone);
  BlockPtr body =
      is_bottleneck
          ? chain({conv_norm(valid(in, width, 1)), conv_norm(same(width, width, 3, stride)),
                   conv_norm(valid(width, out, 1), Activation::kNone)})
          : chain({conv_norm(same(in, width, 3, stride)),
                   conv_norm(same(width, width, 3), Activation::kNone)});
  return std::make_shared<Residual>(std::move(body), std::move(shortcut));
}

bool has_small_stem(const Settings& settings) {
  const std::string& stem = settings.choice("stem");
  return stem == "small" || (stem == "auto" && settings.integer("image") <= 64);
}

}  // namespace

std::shared_ptr<Model> build_resnet(const Settings& settings) {
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  const Shape shape = resnet_shape(settings);
  std::int64_t width = settings.integer("channels");
  const std::int64_t input = settings.integer("image-channels");
  if (has_small_stem(settings)) {
    model->body().add(conv_norm(same(input, width, 3)));
  } else {
    model->body().add(conv_norm(same(input, width, 7, 2)));
    model->body().add(max_pool(3, 2, 1));
  }
  std::int64_t in = width;
  for (std::size_t stage = 0; stage < shape.stages.size(); ++stage, width *= 2) {
    auto blocks = std::make_shared<Chain>();
    for (std::int64_t block = 0; block < shape.stages[stage]; ++block) {
      blocks->add(resnet_block(shape.is_bottleneck, in, width, stage > 0 && block == 0 ? 2 : 1));
      in = shape.is_bottleneck ? 4 * width : width;
    }
    model->body().add(blocks);
  }
  model->body().add(classifier_head(in, settings.integer("classes"), settings.real("dropout")));
  initialize_convolutions(*model);
  return model;
}

std::shared_ptr<Model> build_preact_resnet(const Settings& settings) {
  const std::int64_t depth = settings.integer("depth");
  if ((depth - 2) % 9 != 0 || depth < 11) {
    const std::int64_t nearest = std::max<std::int64_t>(1, (depth - 2 + 4) / 9) * 9 + 2;
    refuse_settings(settings, "depth = " + std::to_string(depth) + " must be 9 * n + 2, such as " +
                                  std::to_string(nearest));
  }
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  std::int64_t width = settings.integer("channels");
  std::int64_t in = width;
  model->body().add(conv(same(settings.integer("image-channels"), width, 3)));
  for (int stage = 0; stage < 3; ++stage, width *= 2) {
    auto blocks = std::make_shared<Chain>();
    for (std::int64_t block = 0; block < (depth - 2) / 9; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const std::int64_t out = 4 * width;
      BlockPtr shortcut;
      if (in != out) shortcut = conv(valid(in, out, 1, stride));
      blocks->add(std::make_shared<PreactResidual>(
          chain({batch_norm(in), relu()}),
          chain({conv_norm(valid(in, width, 1)), conv_norm(same(width, width, 3, stride)),
                 conv(valid(width, out, 1))}),
          std::move(shortcut)));
      in = out;
    }
    model->body().add(blocks);
  }
  model->body().add(batch_norm(in));
  model->body().add(relu());
  model->body().add(classifier_head(in, settings.integer("classes"), settings.real("dropout")));
  initialize_convolutions(*model);
  return model;
}

}  // namespace plimsoll::models
