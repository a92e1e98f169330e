// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/superneurons.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::plan {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / kMib; }

// The paper prints three digits, some rounded and some cut off.
constexpr double kPrinted = 0.00051;

SuperNeuronsReport simulate(const std::string& name, std::int64_t batch) {
  return simulate_superneurons(make_layer_net(name, batch));
}

TEST(SuperNeurons, AlexNetBatch200HasEveryFigureOfThePaper) {
  const SuperNeuronsReport report = simulate("alexnet", 200);
  EXPECT_NEAR(mebibytes(report.baseline_bytes), 2189.437, kPrinted);
  EXPECT_NEAR(mebibytes(report.liveness_bytes), 1489.355, kPrinted);
  EXPECT_NEAR(mebibytes(report.offload_bytes), 1132.056, kPrinted);
  EXPECT_NEAR(mebibytes(report.recompute_bytes[0]), 993.018, kPrinted);
  EXPECT_NEAR(mebibytes(report.recompute_bytes[2]), 886.230, kPrinted);
  EXPECT_THAT(report.extra_recomputes, testing::ElementsAre(14, 23, 17));
  // The paper's layer peak counts the gradient twice where dx is written over dy.
  EXPECT_NEAR(mebibytes(report.layer_peak_as_coded_bytes), 886.230, kPrinted);
  EXPECT_EQ(report.layer_peak_bytes * 4, report.layer_peak_as_coded_bytes * 3);
}

TEST(SuperNeurons, Vgg16Batch32HasEveryFigureOfThePaper) {
  const SuperNeuronsReport report = simulate("vgg16", 32);
  EXPECT_NEAR(mebibytes(report.baseline_bytes), 5447.021, kPrinted);
  EXPECT_NEAR(mebibytes(report.liveness_bytes), 3567.727, kPrinted);
  EXPECT_NEAR(mebibytes(report.offload_bytes), 1940.930, kPrinted);
  EXPECT_NEAR(mebibytes(report.recompute_bytes[2]), 1610.281, kPrinted);
  EXPECT_THAT(report.extra_recomputes, testing::ElementsAre(22, 29, 23));
}

TEST(SuperNeurons, ResNet50Batch32HasEveryFigureOfThePaper) {
  const SuperNeuronsReport report = simulate("resnet50", 32);
  EXPECT_NEAR(mebibytes(report.baseline_bytes), 9096.146, kPrinted);
  EXPECT_NEAR(mebibytes(report.liveness_bytes), 4439.469, kPrinted);
  EXPECT_NEAR(mebibytes(report.offload_bytes), 3155.312, kPrinted);
  EXPECT_NEAR(mebibytes(report.recompute_bytes[0]), 455.125, kPrinted);
  EXPECT_NEAR(mebibytes(report.recompute_bytes[2]), 406.125, kPrinted);
  EXPECT_THAT(report.extra_recomputes, testing::ElementsAre(84, 118, 85));
}

TEST(SuperNeurons, ResNet101And152HaveEveryFigureOfThePaper) {
  const SuperNeuronsReport r101 = simulate("resnet101", 32);
  EXPECT_NEAR(mebibytes(r101.baseline_bytes), 13885.896, kPrinted);
  EXPECT_NEAR(mebibytes(r101.liveness_bytes), 6730.219, kPrinted);
  EXPECT_THAT(r101.extra_recomputes, testing::ElementsAre(169, 237, 170));
  const SuperNeuronsReport r152 = simulate("resnet152", 32);
  EXPECT_NEAR(mebibytes(r152.baseline_bytes), 19802.646, kPrinted);
  EXPECT_NEAR(mebibytes(r152.liveness_bytes), 9559.969, kPrinted);
  EXPECT_THAT(r152.extra_recomputes, testing::ElementsAre(254, 356, 255));
}

TEST(SuperNeurons, ResNet2500Has9168Layers) {
  const SuperNeuronsReport report = simulate("resnet:stages=6-32-788-6", 1);
  EXPECT_EQ(report.layers, 9168U);
  EXPECT_GT(report.baseline_bytes, report.liveness_bytes);
  EXPECT_GT(report.liveness_bytes, report.offload_bytes);
  EXPECT_GT(report.offload_bytes, report.recompute_bytes[2]);
}

TEST(SuperNeurons, RecomputationPeakDoesNotGrowWithDepth) {
  const SuperNeuronsReport shallow = simulate("resnet:stages=6-32-6-6", 16);
  const SuperNeuronsReport deep = simulate("resnet:stages=6-32-596-6", 16);
  EXPECT_EQ(shallow.recompute_bytes[2], deep.recompute_bytes[2]);
}

TEST(SuperNeurons, EveryFigureIsLinearInTheBatch) {
  for (const char* name : {"alexnet", "vgg16", "resnet50"}) {
    const SuperNeuronsReport one = simulate(name, 1);
    const SuperNeuronsReport seven = simulate(name, 7);
    EXPECT_EQ(7 * one.baseline_bytes, seven.baseline_bytes) << name;
    EXPECT_EQ(7 * one.liveness_bytes, seven.liveness_bytes) << name;
    EXPECT_EQ(7 * one.offload_bytes, seven.offload_bytes) << name;
    EXPECT_EQ(7 * one.recompute_bytes[2], seven.recompute_bytes[2]) << name;
    EXPECT_EQ(one.extra_recomputes, seven.extra_recomputes) << name;
  }
}

TEST(LayerNet, RefusesWhatItDoesNotKnowAndNamesIt) {
  const auto message = [](const std::string& name, std::int64_t batch) {
    try {
      make_layer_net(name, batch);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message("resnet51", 1), testing::HasSubstr("'resnet51'"));
  EXPECT_THAT(message("resnet50", 0), testing::HasSubstr("at least 1"));
  EXPECT_THAT(message("resnet50:image=2", 1), testing::HasSubstr("too small"));
  EXPECT_THAT(message("resnet50:depth=8", 1), testing::HasSubstr("depth"));
  EXPECT_THAT(message("resnet:stages=3-x", 1), testing::HasSubstr("stages=x"));
  EXPECT_THAT(message("alexnet:stages=3", 1), testing::HasSubstr("only resnet"));
  EXPECT_THAT(message("resnet50:image", 1), testing::HasSubstr("key=value"));
  EXPECT_THAT(message("vgg16", std::int64_t{1} << 50), testing::HasSubstr("64 bits"));
}

}  // namespace
}  // namespace plimsoll::plan
