// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/models/model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "plimsoll/base/error.h"

#include "builders.h"

namespace plimsoll::models {
namespace {

using Builder = std::shared_ptr<Model> (*)(const Settings&);

Builder find_builder(const std::string& name) {
  static const std::map<std::string, Builder> kBuilders = {
      {"resnet", build_resnet},
      {"resnet18", build_resnet},
      {"resnet34", build_resnet},
      {"resnet50", build_resnet},
      {"resnet101", build_resnet},
      {"resnet152", build_resnet},
      {"vgg11", build_vgg},
      {"vgg16", build_vgg},
      {"alexnet", build_alexnet},
      {"inception-v4", build_inception},
      {"densenet121", build_densenet},
      {"mobilenet-v2", build_mobilenet},
      {"randwire", build_randwire},
      {"darts", build_cell_net},
      {"nasnet", build_cell_net},
      {"unet", build_unet},
      {"vit", build_vit},
      {"gpt", build_gpt},
      {"lstm", build_lstm},
      {"mlp", build_mlp},
      {"preact-resnet", build_preact_resnet},
  };
  const auto found = kBuilders.find(name);
  PLIMSOLL_CHECK(found != kBuilders.end(), "model " + name + " is listed but has no builder");
  return found->second;
}

// Seeds the default CPU generator and puts its state back at the end of the scope.
class ScopedSeed {
 public:
  explicit ScopedSeed(std::uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ScopedSeed(const ScopedSeed&) = delete;
  ScopedSeed& operator=(const ScopedSeed&) = delete;
  ~ScopedSeed() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

}  // namespace

InputShape image_shape(const Settings& settings) {
  InputShape shape;
  shape.channels = settings.integer("image-channels");
  shape.image = settings.integer("image");
  shape.classes = settings.integer("classes");
  return shape;
}

ChainModel::ChainModel(const InputShape& shape)
    : Model(shape), body_(register_module("body", std::make_shared<Chain>())) {}

void refuse_settings(const Settings& settings, const std::string& problem) {
  throw InvalidArgument("model '" + settings.model() + "': " + problem);
}

std::shared_ptr<Model> make_model(const Settings& settings,
                                  std::optional<std::uint64_t> weights_seed) {
  const Builder builder = find_builder(settings.model());
  const ScopedSeed seed(
      weights_seed.value_or(static_cast<std::uint64_t>(settings.integer("seed"))));
  return builder(settings);
}

std::shared_ptr<Model> make_model(std::string_view text,
                                  std::optional<std::uint64_t> weights_seed) {
  return make_model(parse_model(text), weights_seed);
}

torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  if (output.dim() == 3) return torch::cross_entropy_loss(output.flatten(0, 1), target.flatten());
  return torch::cross_entropy_loss(output, target);
}

Batch synthetic_batch(const InputShape& shape, std::int64_t batch_size, std::uint64_t seed) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  if (shape.input == InputKind::kTokens) {
    const torch::Tensor tokens =
        torch::randint(0, shape.classes, {batch_size, shape.sequence + 1}, random, torch::kInt64);
    return {tokens.slice(1, 0, shape.sequence).contiguous(), tokens.slice(1, 1).contiguous()};
  }
  std::vector<std::int64_t> target = {batch_size};
  if (shape.target == TargetKind::kPixel) target.insert(target.end(), 2, shape.image);
  const torch::Tensor input =
      torch::randn({batch_size, shape.channels, shape.image, shape.image}, random);
  return {input, torch::randint(0, shape.classes, target, random, torch::kInt64)};
}

std::int64_t parameter_count(const torch::nn::Module& module) {
  std::set<const void*> seen;
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters())
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  return count;
}

}  // namespace plimsoll::models
