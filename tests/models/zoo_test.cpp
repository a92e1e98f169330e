// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "plimsoll/base/error.h"
#include "plimsoll/models/model.h"

namespace plimsoll::models {
namespace {

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

bool any(const ModelInfo&) { return true; }
bool is_published(const ModelInfo& info) { return info.published_parameters.has_value(); }

std::vector<std::string> names(bool (*wanted)(const ModelInfo&)) {
  std::vector<std::string> found;
  for (const ModelInfo& info : model_list())
    if (wanted(info)) found.push_back(info.name);
  return found;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const ModelInfo& info_of(const std::string& name) {
  for (const ModelInfo& info : model_list())
    if (info.name == name) return info;
  throw InternalError("no model " + name);
}

class EveryModel : public ::testing::TestWithParam<std::string> {
 protected:
  EveryModel() { torch::set_num_threads(2); }
};

// One step's loss and gradients at the small size.
std::vector<torch::Tensor> run_small(const ModelInfo& info) {
  const auto model = make_model(info.small);
  torch::manual_seed(3);
  const Batch batch = synthetic_batch(model->shape(), 2, 7);
  const torch::Tensor loss = cross_entropy(model->forward(batch.input), batch.target);
  loss.backward();
  std::vector<torch::Tensor> results = {loss.detach()};
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key() << " has no gradient";
    if (item.value().grad().defined()) results.push_back(item.value().grad());
  }
  return results;
}

TEST_P(EveryModel, HasOutputsOfTheDeclaredShape) {
  const auto model = make_model(info_of(GetParam()).small);
  const InputShape& shape = model->shape();
  const Batch batch = synthetic_batch(shape, 3, 1);
  const torch::Tensor output = model->forward(batch.input);
  std::vector<std::int64_t> expected = {3, shape.classes};
  if (shape.target == TargetKind::kPixel) expected.insert(expected.end(), 2, shape.image);
  if (shape.target == TargetKind::kToken) expected = {3, shape.sequence, shape.classes};
  EXPECT_EQ(output.sizes().vec(), expected);
  EXPECT_TRUE(cross_entropy(output, batch.target).isfinite().item<bool>());
}

TEST_P(EveryModel, TrainsEveryParameterAndGivesTheSameBitsForTheSameSeed) {
  const std::vector<torch::Tensor> first = run_small(info_of(GetParam()));
  const std::vector<torch::Tensor> second = run_small(info_of(GetParam()));
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same_bits(first[i], second[i])) << i;
}

TEST_P(EveryModel, OtherSeedsGiveOtherWeights) {
  const std::string& small = info_of(GetParam()).small;
  const auto weights = [&](std::uint64_t seed) {
    std::vector<torch::Tensor> found = make_model(small, seed)->parameters();
    return found;
  };
  const auto one = weights(1);
  const auto two = weights(2);
  bool differ = false;
  for (std::size_t i = 0; i < one.size(); ++i) differ = differ || !same_bits(one[i], two[i]);
  EXPECT_TRUE(differ);
}

class PublishedModel : public EveryModel {};

TEST_P(PublishedModel, HasThePublishedNumberOfParameters) {
  const ModelInfo& info = info_of(GetParam());
  EXPECT_EQ(parameter_count(*make_model(info.name)), *info.published_parameters);
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryModel, ::testing::ValuesIn(names(any)), test_name);
INSTANTIATE_TEST_SUITE_P(Zoo, PublishedModel, ::testing::ValuesIn(names(is_published)), test_name);

TEST(Zoo, TransformersHaveTheParametersTheirFormulasGive) {
  // Per layer 12 d^2 + 13 d: four d x d projections and two of 4 d^2, their biases, two norms.
  const auto layers = [](std::int64_t n, std::int64_t d) { return n * (12 * d * d + 13 * d); };
  // GPT-2 small: 124,439,808 with its published sizes.
  EXPECT_EQ(50257 * 768 + 1024 * 768 + layers(12, 768) + 2 * 768, 124439808);
  EXPECT_EQ(parameter_count(*make_model("gpt:layers=3,dim=48,heads=4,seq=32,classes=100")),
            100 * 48 + 32 * 48 + layers(3, 48) + 2 * 48);
  // ViT-B/16: 86,567,656.
  EXPECT_EQ(768 * (3 * 256 + 1) + 768 + 197 * 768 + layers(12, 768) + 2 * 768 + 769 * 1000,
            86567656);
  EXPECT_EQ(parameter_count(*make_model("vit:layers=3,dim=48,heads=4,patch=4,image=16,classes=7")),
            48 * (3 * 16 + 1) + 48 + 17 * 48 + layers(3, 48) + 2 * 48 + 49 * 7);
  // LSTM: 4 d (in + d) and two biases a layer.
  EXPECT_EQ(parameter_count(*make_model("lstm:layers=2,dim=16,classes=32")),
            32 * 16 + 2 * (4 * 16 * 32 + 8 * 16) + 17 * 32);
}

TEST(Zoo, TheResnetFamilyHasTheDepthItsNameSays) {
  // 3 * sum + 2 weighted layers: convolutions on the main path and the last linear layer.
  const auto model = make_model("resnet:stages=2-3-1,channels=4,image=16");
  int weighted = 0;
  for (const auto& item : model->named_parameters())
    weighted += item.value().dim() > 1 && item.key().find("shortcut") == std::string::npos;
  EXPECT_EQ(weighted, 3 * (2 + 3 + 1) + 2);
}

TEST(Zoo, ResnetFiftyIsAMemberOfTheFamily) {
  EXPECT_EQ(parameter_count(
                *make_model("resnet:stages=3-4-6-3,channels=64,image=224,classes=1000,stem=large")),
            25557032);
}

TEST(Zoo, TheThousandLayerNetHasTheParametersOfItsPaper) {
  // 10.2 million, He et al. 2016, table 4.
  const auto model = make_model("preact-resnet:depth=1001");
  EXPECT_NEAR(static_cast<double>(parameter_count(*model)), 10.2e6, 0.2e6);
}

TEST(Zoo, EveryGeneratorOfRandomWiringBuilds) {
  for (const char* generator : {"ws", "er", "ba"}) {
    const auto model = make_model(
        std::string("randwire:nodes=10,p=0.3,channels=4,stages=2,head=8,image=16,generator=") +
        generator);
    const Batch batch = synthetic_batch(model->shape(), 2, 1);
    cross_entropy(model->forward(batch.input), batch.target).backward();
  }
}

TEST(Zoo, BuildingLeavesTheDefaultGeneratorAlone) {
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(5);
  make_model("mlp:layers=1,dim=8,image=4");
  synthetic_batch(InputShape{.image = 8}, 2, 3);
  EXPECT_TRUE(same_bits(torch::rand({4}), expected));
}

TEST(Zoo, ValuesThatDoNotFitTogetherAreRefused) {
  EXPECT_THROW(make_model("vit:image=30,patch=4"), InvalidArgument);
  EXPECT_THROW(make_model("vit:dim=100,heads=3"), InvalidArgument);
  EXPECT_THROW(make_model("gpt:dim=100,heads=3"), InvalidArgument);
  EXPECT_THROW(make_model("unet:image=24,levels=4"), InvalidArgument);
  EXPECT_THROW(make_model("preact-resnet:depth=100"), InvalidArgument);
  EXPECT_THROW(make_model("randwire:nodes=4,k=4"), InvalidArgument);
  EXPECT_THROW(make_model("inception-v4:blocks=1-1"), InvalidArgument);
}

}  // namespace
}  // namespace plimsoll::models
