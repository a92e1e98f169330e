// SPDX-License-Identifier: Apache-2.0
// Inception-v4. Source: Szegedy, Ioffe, Vanhoucke, Alemi, "Inception-v4, Inception-ResNet and the
// Impact of Residual Connections on Learning", 2016, figures 3 to 9.
#include <torch/types.h>

#include "builders.h"

namespace plimsoll::models {
namespace {

// Builds the blocks at a width of base / 32 times the paper's.
class Inception {
 public:
  explicit Inception(std::int64_t base) : base_(base) {}

  std::int64_t scaled(std::int64_t channels) const {
    return std::max<std::int64_t>(1, channels * base_ / 32);
  }

  // A branch: unit after unit.
  BlockPtr unit(std::int64_t in, std::int64_t out, std::array<std::int64_t, 2> kernel,
                std::int64_t stride = 1, bool keeps_size = true) const {
    ConvOptions options = {
        .in = scaled(in), .out = scaled(out), .kernel = kernel, .stride = stride};
    if (keeps_size) options.padding = {kernel[0] / 2, kernel[1] / 2};
    return conv_norm(options, Activation::kRelu, 1e-3);
  }
  BlockPtr point(std::int64_t in, std::int64_t out) const { return unit(in, out, {1, 1}); }
  BlockPtr square(std::int64_t in, std::int64_t out) const { return unit(in, out, {3, 3}); }
  BlockPtr shrink(std::int64_t in, std::int64_t out, std::int64_t stride = 2) const {
    return unit(in, out, {3, 3}, stride, /*keeps_size=*/false);
  }
  BlockPtr wide(std::int64_t in, std::int64_t out, std::int64_t length) const {
    return unit(in, out, {1, length});
  }
  BlockPtr tall(std::int64_t in, std::int64_t out, std::int64_t length) const {
    return unit(in, out, {length, 1});
  }
  BlockPtr pooled_point(std::int64_t in, std::int64_t out) const {
    return chain({average_pool(3, 1, 1), point(in, out)});
  }

  BlockPtr stem(std::int64_t image_channels) const {
    ConvOptions first = valid(image_channels, scaled(32), 3, 2);
    return chain(
        {conv_norm(first, Activation::kRelu, 1e-3), shrink(32, 32, 1), square(32, 64),
         concat({max_pool(3, 2), shrink(64, 96)}),
         concat({chain({point(160, 64), shrink(64, 96, 1)}),
                 chain({point(160, 64), wide(64, 64, 7), tall(64, 64, 7), shrink(64, 96, 1)})}),
         concat({shrink(192, 192), max_pool(3, 2)})});
  }
  BlockPtr block_a() const {
    return concat({point(384, 96), chain({point(384, 64), square(64, 96)}),
                   chain({point(384, 64), square(64, 96), square(96, 96)}), pooled_point(384, 96)});
  }
  BlockPtr reduction_a() const {
    return concat({shrink(384, 384), chain({point(384, 192), square(192, 224), shrink(224, 256)}),
                   max_pool(3, 2)});
  }
  BlockPtr block_b() const {
    return concat({point(1024, 384),
                   chain({point(1024, 192), wide(192, 224, 7), tall(224, 256, 7)}),
                   chain({point(1024, 192), tall(192, 192, 7), wide(192, 224, 7), tall(224, 224, 7),
                          wide(224, 256, 7)}),
                   pooled_point(1024, 128)});
  }
  BlockPtr reduction_b() const {
    return concat(
        {chain({point(1024, 192), shrink(192, 192)}),
         chain({point(1024, 256), wide(256, 256, 7), tall(256, 320, 7), shrink(320, 320)}),
         max_pool(3, 2)});
  }
  BlockPtr block_c() const {
    return concat({point(1536, 256),
                   chain({point(1536, 384), concat({wide(384, 256, 3), tall(384, 256, 3)})}),
                   chain({point(1536, 384), tall(384, 448, 3), wide(448, 512, 3),
                          concat({wide(512, 256, 3), tall(512, 256, 3)})}),
                   pooled_point(1536, 256)});
  }

 private:
  std::int64_t base_;
};

}  // namespace

std::shared_ptr<Model> build_inception(const Settings& settings) {
  const std::int64_t base = settings.integer("channels");
  if (base % 4 != 0)
    refuse_settings(settings, "channels = " + std::to_string(base) + " must be a multiple of 4");
  const Inception make(base);
  const std::vector<std::int64_t> counts = settings.list("blocks");
  if (counts.size() != 3) refuse_settings(settings, "blocks must name three counts, such as 4-7-3");
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  Chain& body = model->body();
  body.add(make.stem(settings.integer("image-channels")));
  for (std::int64_t i = 0; i < counts[0]; ++i) body.add(make.block_a());
  body.add(make.reduction_a());
  for (std::int64_t i = 0; i < counts[1]; ++i) body.add(make.block_b());
  body.add(make.reduction_b());
  for (std::int64_t i = 0; i < counts[2]; ++i) body.add(make.block_c());
  body.add(
      classifier_head(make.scaled(1536), settings.integer("classes"), settings.real("dropout")));
  initialize_convolutions(*model);
  return model;
}

}  // namespace plimsoll::models
