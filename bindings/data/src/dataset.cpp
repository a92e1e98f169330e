// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/data/dataset.h"

#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

#include "resample.h"
#include "split_mix.h"

namespace plimsoll::data {
namespace {

namespace fs = std::filesystem;

// The normalised value of each byte, from integer sums, so that every machine gets the same.
std::array<float, 256> normalised_values(const std::vector<std::uint8_t>& pixels) {
  std::array<std::int64_t, 256> histogram{};
  for (const std::uint8_t pixel : pixels) ++histogram[pixel];
  std::int64_t sum = 0;
  std::int64_t squares = 0;
  for (std::int64_t value = 0; value < 256; ++value) {
    sum += value * histogram[static_cast<std::size_t>(value)];
    squares += value * value * histogram[static_cast<std::size_t>(value)];
  }
  const auto count = static_cast<double>(pixels.size());
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  const double deviation = variance > 0 ? std::sqrt(variance) : 1;
  std::array<float, 256> values{};
  for (std::size_t value = 0; value < 256; ++value)
    values[value] = static_cast<float>((static_cast<double>(value) - mean) / deviation);
  return values;
}

class Images : public Dataset {
 public:
  Images(std::string name, ImageSet images)
      : name_(std::move(name)),
        images_(std::move(images)),
        values_(normalised_values(images_.pixels)) {}
  std::string name() const override { return name_; }
  std::int64_t count() const override { return images_.count(); }
  std::int64_t classes() const override { return images_.classes; }
  std::int64_t label(std::int64_t index) const override {
    return images_.labels[static_cast<std::size_t>(index)];
  }
  void fill_image(std::int64_t index, const ImageShape& shape,
                  std::span<float> out) const override {
    const std::int64_t plane = images_.height * images_.width;
    const std::uint8_t* image = images_.pixels.data() + index * images_.channels * plane;
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
      const std::int64_t source = channel < images_.channels ? channel : 0;
      const std::int64_t area = shape.size * shape.size;
      fit_plane(
          {image + source * plane, images_.height, images_.width}, values_, shape.size,
          out.subspan(static_cast<std::size_t>(channel * area), static_cast<std::size_t>(area)));
    }
  }
  void fill_tokens(std::int64_t, std::int64_t, std::span<std::int64_t>) const override {
    throw InvalidArgument(
        fmt::format("--data: '{}' holds images, this model takes tokens; use synthetic", name_));
  }

 private:
  std::string name_;
  ImageSet images_;
  std::array<float, 256> values_;
};

std::optional<fs::path> find_file(const fs::path& folder, const std::string& stem) {
  for (const std::string& suffix : {std::string(""), std::string(".gz")})
    if (fs::exists(folder / (stem + suffix))) return folder / (stem + suffix);
  return std::nullopt;
}

// The IDX files of a folder; MNIST's mirrors write "-idx3" or ".idx3".
std::optional<ImageSet> find_idx(const fs::path& folder, Split split) {
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  for (const std::string& joint : {std::string("-"), std::string(".")}) {
    const auto images = find_file(folder, fmt::format("{}-images{}idx3-ubyte", prefix, joint));
    const auto labels = find_file(folder, fmt::format("{}-labels{}idx1-ubyte", prefix, joint));
    if (images && labels) return read_idx(*images, *labels);
  }
  return std::nullopt;
}

std::optional<ImageSet> find_cifar10(const fs::path& folder, Split split) {
  for (const fs::path& place : {folder, folder / "cifar-10-batches-bin"}) {
    std::vector<fs::path> batches;
    if (split == Split::kTest) {
      if (const auto batch = find_file(place, "test_batch.bin")) batches.push_back(*batch);
    } else {
      for (int number = 1; number <= 5; ++number)
        if (const auto batch = find_file(place, fmt::format("data_batch_{}.bin", number)))
          batches.push_back(*batch);
    }
    if (!batches.empty()) return read_cifar10(batches);
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Dataset> make_dataset(std::string name, ImageSet images) {
  return std::make_unique<Images>(std::move(name), std::move(images));
}

fs::path fashion_mnist_folder() { return "/usr/share/datasets/fashion-mnist"; }

std::unique_ptr<Dataset> open_dataset(std::string_view name, Split split,
                                      std::int64_t synthetic_classes) {
  if (name == "synthetic") {
    return make_synthetic(split == Split::kTrain ? 50000 : 2000, synthetic_classes,
                          {.patterns = 1, .samples = split == Split::kTrain ? 2U : 3U});
  }
  const fs::path folder = name == "fashion-mnist" ? fashion_mnist_folder() : fs::path(name);
  if (!fs::is_directory(folder)) {
    throw InvalidArgument(
        name == "fashion-mnist"
            ? fmt::format("--data: fashion-mnist is not in '{}'; install Debian's package "
                          "dataset-fashion-mnist, or name a folder with its IDX files",
                          folder.string())
            : fmt::format("--data: '{}' is no folder; write fashion-mnist, synthetic or a folder "
                          "with IDX files or CIFAR-10 batches",
                          name));
  }
  auto images = find_idx(folder, split);
  if (!images) images = find_cifar10(folder, split);
  if (!images) {
    const bool is_train = split == Split::kTrain;
    throw InvalidArgument(fmt::format(
        "--data: '{}' holds neither {}-images-idx3-ubyte and -labels-idx1-ubyte (plain or .gz) nor "
        "{}",
        folder.string(), is_train ? "train" : "t10k",
        is_train ? "data_batch_1.bin" : "test_batch.bin"));
  }
  return make_dataset(std::string(name), *std::move(images));
}

std::vector<std::int64_t> epoch_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  SplitMix random(SplitMix::mix(seed, static_cast<std::uint64_t>(epoch)));
  // Fisher and Yates' shuffle.
  for (std::int64_t i = count - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(random.below(i + 1))]);
  return order;
}

}  // namespace plimsoll::data
