// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "plimsoll/base/error.h"
#include "plimsoll/data/dataset.h"

#include "split_mix.h"

namespace plimsoll::data {
namespace {

class Synthetic : public Dataset {
 public:
  Synthetic(std::int64_t count, std::int64_t classes, const SyntheticSeeds& seeds)
      : count_(count), classes_(classes), seeds_(seeds) {
    if (count < 1 || classes < 1)
      throw InvalidArgument("a synthetic set needs at least one sample and one class");
  }
  std::string name() const override { return "synthetic"; }
  std::int64_t count() const override { return count_; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t label(std::int64_t index) const override {
    return random_for(index).below(classes_);
  }

  // A plane wave whose direction and length the class decides, and uniform noise.
  void fill_image(std::int64_t index, const ImageShape& shape,
                  std::span<float> out) const override {
    SplitMix random = random_for(index);
    const std::int64_t label = random.below(classes_);
    SplitMix pattern(SplitMix::mix(seeds_.patterns, static_cast<std::uint64_t>(label)));
    std::size_t place = 0;
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
      const float across = pattern.uniform() * 6 - 3;
      const float down = pattern.uniform() * 6 - 3;
      const float turn = 1 / static_cast<float>(shape.size);
      for (std::int64_t y = 0; y < shape.size; ++y) {
        for (std::int64_t x = 0; x < shape.size; ++x) {
          const float phase =
              turn * (across * static_cast<float>(x) + down * static_cast<float>(y));
          // The triangle wave needs no library function that differs between machines.
          const float wave = 4 * std::abs(phase - std::floor(phase + 0.5F)) - 1;
          out[place++] = wave + (random.uniform() - 0.5F) * 3;
        }
      }
    }
  }

  // Each token follows from the one before by a fixed map, one in eight is random.
  void fill_tokens(std::int64_t index, std::int64_t vocabulary,
                   std::span<std::int64_t> out) const override {
    SplitMix random = random_for(index);
    std::int64_t token = random.below(vocabulary);
    for (std::int64_t& place : out) {
      place = token;
      token = random.below(8) == 0 ? random.below(vocabulary) : (token * 5 + 7) % vocabulary;
    }
  }

 private:
  SplitMix random_for(std::int64_t index) const {
    return SplitMix(SplitMix::mix(seeds_.samples, static_cast<std::uint64_t>(index)));
  }

  std::int64_t count_;
  std::int64_t classes_;
  SyntheticSeeds seeds_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(std::int64_t count, std::int64_t classes,
                                        const SyntheticSeeds& seeds) {
  return std::make_unique<Synthetic>(count, classes, seeds);
}

}  // namespace plimsoll::data
