// SPDX-License-Identifier: Apache-2.0
#include "loader.h"

#include <algorithm>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <torch/types.h>

#include "plimsoll/base/error.h"

namespace plimsoll::train {
namespace {

models::Batch load_tokens(const data::Dataset& data, const models::InputShape& shape,
                          const std::vector<std::int64_t>& indices) {
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t length = shape.sequence;
  const torch::Tensor input = torch::empty({count, length}, torch::kInt64);
  const torch::Tensor target = torch::empty({count, length}, torch::kInt64);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(length + 1));
  for (std::int64_t i = 0; i < count; ++i) {
    data.fill_tokens(indices[static_cast<std::size_t>(i)], shape.classes, tokens);
    std::copy_n(tokens.begin(), length, input.data_ptr<std::int64_t>() + i * length);
    std::copy_n(tokens.begin() + 1, length, target.data_ptr<std::int64_t>() + i * length);
  }
  return {input, target};
}

// What is brighter than the mean belongs to the sample's class (counted from 1), the rest to 0.
void fill_pixel_target(const float* plane, std::int64_t area, std::int64_t label,
                       std::int64_t* target) {
  for (std::int64_t i = 0; i < area; ++i) target[i] = plane[i] > 0 ? label : 0;
}

models::Batch load_images(const data::Dataset& data, const models::InputShape& shape,
                          const std::vector<std::int64_t>& indices) {
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t area = shape.image * shape.image;
  const bool is_pixel = shape.target == models::TargetKind::kPixel;
  const torch::Tensor input =
      torch::empty({count, shape.channels, shape.image, shape.image}, torch::kFloat32);
  const torch::Tensor target = is_pixel
                                   ? torch::empty({count, shape.image, shape.image}, torch::kInt64)
                                   : torch::empty({count}, torch::kInt64);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    float* image = input.data_ptr<float>() + i * shape.channels * area;
    data.fill_image(index, {.channels = shape.channels, .size = shape.image},
                    {image, static_cast<std::size_t>(shape.channels * area)});
    const std::int64_t label = data.label(index);
    if (is_pixel) {
      fill_pixel_target(image, area, std::min(label + 1, shape.classes - 1),
                        target.data_ptr<std::int64_t>() + i * area);
    } else {
      target.data_ptr<std::int64_t>()[i] = label;
    }
  }
  return {input, target};
}

}  // namespace

Loader::Loader(std::shared_ptr<const data::Dataset> data, const models::InputShape& shape,
               std::int64_t batch, std::uint64_t seed)
    : data_(std::move(data)), shape_(shape), batch_(batch), seed_(seed) {
  if (batch < 1 || batch > (std::int64_t{1} << 20))
    throw InvalidArgument(fmt::format("--batch: {} must be 1 to 1048576", batch));
  if (shape.target == models::TargetKind::kSample && data_->classes() > shape.classes) {
    throw InvalidArgument(
        fmt::format("--data: '{}' has {} classes but the model tells {} apart; write classes={} in "
                    "the model",
                    data_->name(), data_->classes(), shape.classes, data_->classes()));
  }
}

std::int64_t Loader::steps_per_epoch() const { return (data_->count() + batch_ - 1) / batch_; }

models::Batch Loader::batch_of_step(std::int64_t step) {
  const std::int64_t epoch = step / steps_per_epoch();
  if (epoch != epoch_) {
    order_ = data::epoch_order(data_->count(), seed_, epoch);
    epoch_ = epoch;
  }
  const std::int64_t begin = step % steps_per_epoch() * batch_;
  const std::int64_t end = std::min(begin + batch_, data_->count());
  return load_samples(*data_, shape_, {order_.begin() + begin, order_.begin() + end});
}

models::Batch load_samples(const data::Dataset& data, const models::InputShape& shape,
                           const std::vector<std::int64_t>& indices) {
  return shape.input == models::InputKind::kTokens ? load_tokens(data, shape, indices)
                                                   : load_images(data, shape, indices);
}

}  // namespace plimsoll::train
