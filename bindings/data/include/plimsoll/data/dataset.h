// SPDX-License-Identifier: Apache-2.0
// Labelled images and token sequences to train on.
//
// Nouns: ImageSet (bytes as a file holds them), Dataset (samples in the shape a model asks for).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::data {

enum class Split : std::uint8_t { kTrain, kTest };

// Images as files hold them: bytes in the order [image, channel, row, column].
struct ImageSet {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 10;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

// Reads a pair of IDX files (the format of MNIST), plain or gzip.
// Errors: InvalidFile, naming the file, the byte (of the unpacked content) and what was expected:
// missing, truncated, trailing bytes, wrong magic number, sizes that disagree, a damaged gzip
// stream.
ImageSet read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

// Reads CIFAR-10 binary batches (records of one label and 3 x 32 x 32 bytes), plain or gzip.
// Errors: InvalidFile, as read_idx; a label above 9 names its record.
ImageSet read_cifar10(const std::vector<std::filesystem::path>& batches);

// The size of the images that a model takes.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t size = 32;
};

// Numbered samples. The same number always gives the same sample. Threads: const calls are safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string name() const = 0;
  virtual std::int64_t count() const = 0;
  // Labels lie in [0, classes()).
  virtual std::int64_t classes() const = 0;
  virtual std::int64_t label(std::int64_t index) const = 0;
  // Fills channels * size * size floats of mean about 0 and deviation about 1.
  virtual void fill_image(std::int64_t index, const ImageShape& shape,
                          std::span<float> out) const = 0;
  // Fills a token sequence below `vocabulary`. Errors: InvalidArgument where the set holds images
  // only.
  virtual void fill_tokens(std::int64_t index, std::int64_t vocabulary,
                           std::span<std::int64_t> out) const = 0;
};

// Wraps images. They are centred in a border of zeros where the model's image is larger by at most
// half, else resampled bilinearly; missing channels repeat the first, surplus ones are left out;
// values are normalised by the mean and the deviation of the whole set.
std::unique_ptr<Dataset> make_dataset(std::string name, ImageSet images);

// Images (a pattern a class, and noise) and sequences with a rule to learn, made as they are asked
// for. Sets that share the seed of the patterns can be learnt on one and tested on the other.
// Determinism: the seeds and the sample's number alone decide, everywhere.
struct SyntheticSeeds {
  std::uint64_t patterns = 1;
  std::uint64_t samples = 2;
};
std::unique_ptr<Dataset> make_synthetic(std::int64_t count, std::int64_t classes,
                                        const SyntheticSeeds& seeds);

// Where Debian's package dataset-fashion-mnist puts its files.
std::filesystem::path fashion_mnist_folder();

// Opens "fashion-mnist", "synthetic" (with `synthetic_classes`) or a folder with IDX files (train-*
// and t10k-*) or CIFAR-10 batches (data_batch_*.bin and test_batch.bin).
// Errors: InvalidArgument where nothing is found (naming what was looked for), InvalidFile.
std::unique_ptr<Dataset> open_dataset(std::string_view name, Split split,
                                      std::int64_t synthetic_classes);

// The order of samples in an epoch: a permutation of [0, count) that seed and epoch alone decide.
// Cost: O(count).
std::vector<std::int64_t> epoch_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

}  // namespace plimsoll::data
