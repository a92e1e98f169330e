// SPDX-License-Identifier: Apache-2.0
// The model zoo: ordinary LibTorch modules, made from a text.
//
// Nouns: Model, InputShape (what one sample looks like and what the loss compares).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <torch/nn/module.h>

#include "plimsoll/models/spec.h"

namespace plimsoll::models {

// kImage: float [batch, channels, image, image]; kTokens: int64 [batch, sequence] below `classes`.
enum class InputKind : std::uint8_t { kImage, kTokens };

// kSample: one class a sample; kPixel: one class a pixel; kToken: one class (the next token) a
// position.
enum class TargetKind : std::uint8_t { kSample, kPixel, kToken };

struct InputShape {
  InputKind input = InputKind::kImage;
  TargetKind target = TargetKind::kSample;
  std::int64_t channels = 3;
  std::int64_t image = 224;
  std::int64_t sequence = 0;
  std::int64_t classes = 1000;
};

// A network that says what it eats. Its forward is plain LibTorch code that knows nothing of
// budgets.
class Model : public torch::nn::Module {
 public:
  explicit Model(const InputShape& shape) : shape_(shape) {}
  // Input as InputShape says. Output: kSample [batch, classes], kPixel [batch, classes, image,
  // image], kToken [batch, sequence, classes].
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
  const InputShape& shape() const noexcept { return shape_; }

 private:
  InputShape shape_;
};

// Builds a model in training mode, float32, on the CPU.
// Determinism: the weights come from `weights_seed` (the model's key `seed` where absent) alone;
// the default generator is left as it was. Errors: InvalidArgument as parse_model, and for values
// that do not fit together (such as an image that is no multiple of the patch).
std::shared_ptr<Model> make_model(const Settings& settings,
                                  std::optional<std::uint64_t> weights_seed = std::nullopt);
std::shared_ptr<Model> make_model(std::string_view text,
                                  std::optional<std::uint64_t> weights_seed = std::nullopt);

// The mean cross-entropy between output and target (int64, of the shape TargetKind says).
torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& target);

// A deterministic batch for tests and measurements: standard normal images or uniform tokens, and
// uniform targets, from `seed` alone; the default generator is left as it was.
struct Batch {
  torch::Tensor input;
  torch::Tensor target;
};
Batch synthetic_batch(const InputShape& shape, std::int64_t batch_size, std::uint64_t seed);

// The number of elements of all parameters; shared ones count once.
std::int64_t parameter_count(const torch::nn::Module& module);

}  // namespace plimsoll::models
