// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/data/dataset.h"

namespace plimsoll::data {
namespace {

using ::testing::ElementsAre;

// One image of 2 x 2 with two dark and two bright pixels: normalised -1 and 1.
std::unique_ptr<Dataset> tiny() {
  ImageSet images;
  images.height = images.width = 2;
  images.pixels = {0, 200, 0, 200};
  images.labels = {3};
  return make_dataset("tiny", images);
}

std::vector<float> image_of(const Dataset& set, std::int64_t index, const ImageShape& shape) {
  std::vector<float> image(static_cast<std::size_t>(shape.channels * shape.size * shape.size));
  set.fill_image(index, shape, image);
  return image;
}

TEST(Images, AreNormalisedByMeanAndDeviation) {
  EXPECT_THAT(image_of(*tiny(), 0, {.channels = 1, .size = 2}), ElementsAre(-1, 1, -1, 1));
}

TEST(Images, AreCentredInASlightlyLargerSquare) {
  EXPECT_THAT(image_of(*tiny(), 0, {.channels = 1, .size = 3}),
              ElementsAre(-1, 1, -1, -1, 1, -1, -1, -1, -1));
}

TEST(Images, AreResampledToOtherSizes) {
  // Pixel centres at half: 0.25 and 0.75 of the way between clamped neighbours.
  EXPECT_THAT(image_of(*tiny(), 0, {.channels = 1, .size = 4}),
              ElementsAre(-1, -0.5, 0.5, 1, -1, -0.5, 0.5, 1, -1, -0.5, 0.5, 1, -1, -0.5, 0.5, 1));
  EXPECT_THAT(image_of(*tiny(), 0, {.channels = 1, .size = 1}), ElementsAre(0));
}

TEST(Images, RepeatTheFirstChannel) {
  EXPECT_THAT(image_of(*tiny(), 0, {.channels = 2, .size = 1}), ElementsAre(0, 0));
  EXPECT_THAT(image_of(*tiny(), 0, {.channels = 2, .size = 2}),
              ElementsAre(-1, 1, -1, 1, -1, 1, -1, 1));
}

TEST(Images, HoldNoTokens) {
  std::vector<std::int64_t> tokens(4);
  EXPECT_THROW(tiny()->fill_tokens(0, 10, tokens), InvalidArgument);
}

TEST(Synthetic, SamplesDependOnTheirNumberAlone) {
  const auto one = make_synthetic(100, 10, {});
  const auto two = make_synthetic(100, 10, {});
  const ImageShape shape{.channels = 3, .size = 8};
  EXPECT_EQ(image_of(*one, 7, shape), image_of(*two, 7, shape));
  EXPECT_NE(image_of(*one, 7, shape), image_of(*one, 8, shape));
  std::vector<std::int64_t> a(16), b(16);
  one->fill_tokens(3, 50, a);
  two->fill_tokens(3, 50, b);
  EXPECT_EQ(a, b);
  EXPECT_LT(*std::max_element(a.begin(), a.end()), 50);
  EXPECT_GE(*std::min_element(a.begin(), a.end()), 0);
}

TEST(Synthetic, LabelsUseEveryClass) {
  const auto set = make_synthetic(1000, 10, {});
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < set->count(); ++i) seen.insert(set->label(i));
  EXPECT_EQ(seen.size(), 10U);
  EXPECT_EQ(*seen.rbegin(), 9);
}

TEST(Order, IsAPermutationThatSeedAndEpochDecide) {
  std::vector<std::int64_t> order = epoch_order(1000, 1, 0);
  EXPECT_EQ(order, epoch_order(1000, 1, 0));
  EXPECT_NE(order, epoch_order(1000, 1, 1));
  EXPECT_NE(order, epoch_order(1000, 2, 0));
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

}  // namespace
}  // namespace plimsoll::data
