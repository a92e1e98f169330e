// SPDX-License-Identifier: Apache-2.0
// One function a family: from settings to a module with LibTorch's default weights.
#pragma once

#include <memory>

#include "plimsoll/models/model.h"
#include "plimsoll/models/spec.h"

#include "blocks.h"

namespace plimsoll::models {

std::shared_ptr<Model> build_resnet(const Settings& settings);
std::shared_ptr<Model> build_preact_resnet(const Settings& settings);
std::shared_ptr<Model> build_vgg(const Settings& settings);
std::shared_ptr<Model> build_alexnet(const Settings& settings);
std::shared_ptr<Model> build_inception(const Settings& settings);
std::shared_ptr<Model> build_densenet(const Settings& settings);
std::shared_ptr<Model> build_mobilenet(const Settings& settings);
std::shared_ptr<Model> build_randwire(const Settings& settings);
std::shared_ptr<Model> build_cell_net(const Settings& settings);
std::shared_ptr<Model> build_unet(const Settings& settings);
std::shared_ptr<Model> build_vit(const Settings& settings);
std::shared_ptr<Model> build_gpt(const Settings& settings);
std::shared_ptr<Model> build_lstm(const Settings& settings);
std::shared_ptr<Model> build_mlp(const Settings& settings);

// The shape of an image classifier's input from the shared keys.
InputShape image_shape(const Settings& settings);

// A model that is one chain of blocks.
class ChainModel : public Model {
 public:
  explicit ChainModel(const InputShape& shape);
  Chain& body() { return *body_; }
  torch::Tensor forward(const torch::Tensor& input) override { return body_->forward(input); }

 private:
  std::shared_ptr<Chain> body_;
};

// Throws InvalidArgument "model 'x': problem".
[[noreturn]] void refuse_settings(const Settings& settings, const std::string& problem);

}  // namespace plimsoll::models
