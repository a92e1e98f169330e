// SPDX-License-Identifier: Apache-2.0
#include "operator_zoo.h"

namespace plimsoll::simgpu {
namespace {

namespace F = torch::nn::functional;

std::vector<ZooCase> convolution_cases() {
  const Tensors image{normal({2, 4, 9, 9}), normal({6, 4, 3, 3}, 2), normal({6}, 3)};
  return {
      {"conv1d",
       {normal({2, 3, 12}), normal({4, 3, 3}, 2), normal({4}, 3)},
       [](Tensors& t) { return Tensors{torch::conv1d(t[0], t[1], t[2], 1, 1)}; }},
      {"conv2d", image, [](Tensors& t) { return Tensors{torch::conv2d(t[0], t[1], t[2], 1, 1)}; }},
      {"conv2d strided", image,
       [](Tensors& t) { return Tensors{torch::conv2d(t[0], t[1], t[2], 2, 1)}; }},
      {"conv2d dilated", image,
       [](Tensors& t) { return Tensors{torch::conv2d(t[0], t[1], t[2], 1, 2, 2)}; }},
      {"conv2d without bias",
       {image[0], image[1]},
       [](Tensors& t) { return Tensors{torch::conv2d(t[0], t[1])}; }},
      {"conv2d grouped",
       {normal({2, 4, 9, 9}), normal({8, 2, 3, 3}, 2)},
       [](Tensors& t) { return Tensors{torch::conv2d(t[0], t[1], {}, 1, 1, 1, 2)}; }},
      {"conv2d depthwise",
       {normal({2, 4, 9, 9}), normal({4, 1, 3, 3}, 2)},
       [](Tensors& t) { return Tensors{torch::conv2d(t[0], t[1], {}, 1, 1, 1, 4)}; }},
      {"conv2d channels last", image,
       [](Tensors& t) {
         return Tensors{torch::conv2d(t[0].contiguous(at::MemoryFormat::ChannelsLast), t[1], t[2])};
       }},
      {"conv3d",
       {normal({1, 2, 5, 6, 6}), normal({3, 2, 3, 3, 3}, 2), normal({3}, 3)},
       [](Tensors& t) { return Tensors{torch::conv3d(t[0], t[1], t[2], 1, 1)}; }},
      {"conv_transpose1d",
       {normal({2, 3, 8}), normal({3, 4, 3}, 2)},
       [](Tensors& t) { return Tensors{torch::conv_transpose1d(t[0], t[1], {}, 2)}; }},
      {"conv_transpose2d",
       {normal({2, 4, 5, 5}), normal({4, 3, 3, 3}, 2), normal({3}, 3)},
       [](Tensors& t) { return Tensors{torch::conv_transpose2d(t[0], t[1], t[2], 2, 1)}; }},
      {"conv_transpose3d",
       {normal({1, 2, 3, 3, 3}), normal({2, 3, 2, 2, 2}, 2)},
       [](Tensors& t) { return Tensors{torch::conv_transpose3d(t[0], t[1])}; }},
      {"conv_tbc",
       {normal({8, 2, 3}), normal({3, 3, 4}, 2), normal({4}, 3)},
       [](Tensors& t) { return Tensors{torch::conv_tbc(t[0], t[1], t[2], 1)}; }},
      {"unfold and fold",
       {normal({2, 3, 6, 6})},
       [](Tensors& t) {
         const auto columns = torch::im2col(t[0], {3, 3}, {1, 1}, {1, 1}, {1, 1});
         return Tensors{
             torch::col2im(columns.mul(columns), {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1})};
       }},
  };
}

std::vector<ZooCase> norm_cases() {
  const Tensors image{normal({4, 6, 5, 5}), normal({6}, 2), normal({6}, 3)};
  return {
      {"batch_norm training",
       {image[0], image[1], image[2]},
       [](Tensors& t) {
         torch::Tensor mean = torch::zeros({6}, t[0].options());
         torch::Tensor variance = torch::ones({6}, t[0].options());
         const auto y = torch::batch_norm(t[0], t[1], t[2], mean, variance, true, 0.1, 1e-5, false);
         return Tensors{y, mean, variance};
       }},
      {"batch_norm evaluation",
       {image[0], image[1], image[2]},
       [](Tensors& t) {
         const torch::Tensor mean = torch::full({6}, 0.5, t[0].options());
         const torch::Tensor variance = torch::full({6}, 2.0, t[0].options());
         return Tensors{
             torch::batch_norm(t[0], t[1], t[2], mean, variance, false, 0.1, 1e-5, false)};
       }},
      {"layer_norm",
       {normal({4, 7, 16}), normal({16}, 2), normal({16}, 3)},
       [](Tensors& t) { return Tensors{torch::layer_norm(t[0], {16}, t[1], t[2])}; }},
      {"layer_norm without affine",
       {normal({4, 7, 16})},
       [](Tensors& t) { return Tensors{torch::layer_norm(t[0], {7, 16})}; }},
      {"group_norm", image,
       [](Tensors& t) { return Tensors{torch::group_norm(t[0], 3, t[1], t[2])}; }},
      {"instance_norm", image,
       [](Tensors& t) {
         return Tensors{torch::instance_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false)};
       }},
      {"rms_norm",
       {normal({4, 16}), normal({16}, 2)},
       [](Tensors& t) { return Tensors{torch::rms_norm(t[0], {16}, t[1])}; }},
      {"local_response_norm",
       {normal({2, 6, 4, 4})},
       [](Tensors& t) {
         return Tensors{F::local_response_norm(t[0], F::LocalResponseNormFuncOptions(3))};
       }},
      {"normalize",
       {normal({4, 16})},
       [](Tensors& t) { return Tensors{F::normalize(t[0], F::NormalizeFuncOptions().dim(1))}; }},
  };
}

std::vector<ZooCase> pool_cases() {
  const Tensors image{normal({2, 3, 9, 9})};
  const Tensors volume{normal({1, 2, 6, 6, 6})};
  return {
      {"max_pool1d",
       {normal({2, 3, 12})},
       [](Tensors& t) { return Tensors{torch::max_pool1d(t[0], 3, 2, 1)}; }},
      {"max_pool2d", image, [](Tensors& t) { return Tensors{torch::max_pool2d(t[0], 3, 2, 1)}; }},
      {"max_pool3d", volume, [](Tensors& t) { return Tensors{torch::max_pool3d(t[0], 2)}; }},
      {"avg_pool1d",
       {normal({2, 3, 12})},
       [](Tensors& t) { return Tensors{torch::avg_pool1d(t[0], 3, 2)}; }},
      {"avg_pool2d", image, [](Tensors& t) { return Tensors{torch::avg_pool2d(t[0], 3, 2, 1)}; }},
      {"avg_pool3d", volume, [](Tensors& t) { return Tensors{torch::avg_pool3d(t[0], 2)}; }},
      {"adaptive_avg_pool2d", image,
       [](Tensors& t) { return Tensors{torch::adaptive_avg_pool2d(t[0], {4, 4})}; }},
      {"adaptive_max_pool2d", image,
       [](Tensors& t) { return Tensors{std::get<0>(torch::adaptive_max_pool2d(t[0], {4, 4}))}; }},
      {"fractional_max_pool2d",
       {image[0], normal({2, 3, 2}, 4).sigmoid()},
       [](Tensors& t) {
         return Tensors{
             std::get<0>(torch::fractional_max_pool2d(t[0], {2, 2}, {4, 4}, t[1].detach()))};
       }},
      {"lp_pool2d",
       {image[0].abs()},
       [](Tensors& t) { return Tensors{F::lp_pool2d(t[0], F::LPPool2dFuncOptions(2, 3))}; }},
      {"max_unpool2d", image,
       [](Tensors& t) {
         const auto [pooled, indices] = torch::max_pool2d_with_indices(t[0], 3, 3);
         return Tensors{torch::max_unpool2d(pooled, indices, {9, 9})};
       }},
  };
}

std::vector<ZooCase> resampling_cases() {
  const Tensors image{normal({2, 3, 6, 6})};
  return {
      {"upsample_nearest2d", image,
       [](Tensors& t) { return Tensors{torch::upsample_nearest2d(t[0], {12, 9})}; }},
      {"upsample_bilinear2d", image,
       [](Tensors& t) { return Tensors{torch::upsample_bilinear2d(t[0], {12, 9}, false)}; }},
      {"upsample_bicubic2d", image,
       [](Tensors& t) { return Tensors{torch::upsample_bicubic2d(t[0], {9, 9}, true)}; }},
      {"upsample_linear1d",
       {normal({2, 3, 8})},
       [](Tensors& t) { return Tensors{torch::upsample_linear1d(t[0], {13}, false)}; }},
      {"upsample_trilinear3d",
       {normal({1, 2, 3, 3, 3})},
       [](Tensors& t) { return Tensors{torch::upsample_trilinear3d(t[0], {5, 5, 5}, false)}; }},
      {"grid_sampler",
       {image[0], normal({2, 4, 4, 2}, 5).tanh()},
       [](Tensors& t) { return Tensors{torch::grid_sampler(t[0], t[1], 0, 0, false)}; }},
      {"affine_grid",
       {normal({2, 2, 3})},
       [](Tensors& t) { return Tensors{torch::affine_grid_generator(t[0], {2, 3, 4, 4}, false)}; }},
      {"pixel_shuffle",
       {normal({2, 8, 3, 3})},
       [](Tensors& t) { return Tensors{torch::pixel_shuffle(t[0], 2)}; }},
      {"channel_shuffle",
       {normal({2, 8, 3, 3})},
       [](Tensors& t) { return Tensors{torch::channel_shuffle(t[0].mul(2), 2)}; }},
      {"reflection_pad2d", image,
       [](Tensors& t) { return Tensors{torch::reflection_pad2d(t[0], {1, 2, 1, 2})}; }},
      {"replication_pad2d", image,
       [](Tensors& t) { return Tensors{torch::replication_pad2d(t[0], {1, 2, 1, 2})}; }},
      {"constant_pad", image,
       [](Tensors& t) { return Tensors{torch::constant_pad_nd(t[0], {1, 2, 1, 2}, 0.5)}; }},
  };
}

std::vector<ZooCase> attention_cases() {
  const Tensors heads{normal({2, 4, 10, 8}), normal({2, 4, 12, 8}, 2), normal({2, 4, 12, 8}, 3)};
  return {
      {"attention", heads,
       [](Tensors& t) { return Tensors{torch::scaled_dot_product_attention(t[0], t[1], t[2])}; }},
      {"attention causal",
       {heads[1], heads[1], heads[2]},
       [](Tensors& t) {
         return Tensors{torch::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, true)};
       }},
      {"attention masked", heads,
       [](Tensors& t) {
         const torch::Tensor mask = torch::ones({10, 12}, t[0].options()).tril();
         return Tensors{torch::scaled_dot_product_attention(t[0], t[1], t[2], mask)};
       }},
      {"attention with dropout", heads,
       [](Tensors& t) {
         return Tensors{torch::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.25)};
       }},
      {"embedding",
       {normal({20, 6})},
       [](Tensors& t) {
         return Tensors{torch::embedding(t[0], integers({3, 5}, 20).to(t[0].device()))};
       }},
      {"embedding with padding",
       {normal({20, 6})},
       [](Tensors& t) {
         return Tensors{torch::embedding(t[0], integers({3, 5}, 20).to(t[0].device()), 3)};
       }},
      {"embedding_bag",
       {normal({20, 6})},
       [](Tensors& t) {
         const auto rows = integers({12}, 20).to(t[0].device());
         const auto offsets = torch::arange(0, 12, 4, rows.options());
         return Tensors{std::get<0>(torch::embedding_bag(t[0], rows, offsets))};
       }},
      {"linear",
       {normal({5, 8}), normal({7, 8}, 2), normal({7}, 3)},
       [](Tensors& t) { return Tensors{torch::linear(t[0], t[1], t[2])}; }},
      {"bilinear",
       {normal({5, 4}), normal({5, 3}, 2), normal({6, 4, 3}, 3), normal({6}, 4)},
       [](Tensors& t) { return Tensors{torch::bilinear(t[0], t[1], t[2], t[3])}; }},
  };
}

}  // namespace

std::vector<ZooCase> layer_cases() {
  std::vector<ZooCase> all;
  for (auto&& cases :
       {convolution_cases(), norm_cases(), pool_cases(), resampling_cases(), attention_cases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

std::vector<ZooCase> loss_cases() {
  const Tensors two{normal({6, 5}), normal({6, 5}, 2)};
  const Tensors scores{normal({6, 5})};
  const auto classes = [](const Tensors& t) { return integers({6}, 5).to(t[0].device()); };
  return {
      {"cross_entropy", scores,
       [=](Tensors& t) { return Tensors{torch::cross_entropy_loss(t[0], classes(t))}; }},
      {"cross_entropy smoothed", scores,
       [=](Tensors& t) {
         return Tensors{torch::cross_entropy_loss(t[0], classes(t), {}, 1, -100, 0.1)};
       }},
      {"nll_loss2d",
       {normal({2, 5, 4, 4})},
       [](Tensors& t) {
         const auto target = integers({2, 4, 4}, 5).to(t[0].device());
         return Tensors{torch::nll_loss2d(torch::log_softmax(t[0], 1), target)};
       }},
      {"mse_loss", two, [](Tensors& t) { return Tensors{torch::mse_loss(t[0], t[1])}; }},
      {"l1_loss", two, [](Tensors& t) { return Tensors{torch::l1_loss(t[0], t[1])}; }},
      {"smooth_l1_loss", two,
       [](Tensors& t) { return Tensors{torch::smooth_l1_loss(t[0], t[1])}; }},
      {"huber_loss", two, [](Tensors& t) { return Tensors{torch::huber_loss(t[0], t[1])}; }},
      {"binary_cross_entropy",
       {normal({6, 5}).sigmoid(), normal({6, 5}, 2).sigmoid()},
       [](Tensors& t) { return Tensors{torch::binary_cross_entropy(t[0], t[1].detach())}; }},
      {"binary_cross_entropy_with_logits", two,
       [](Tensors& t) {
         return Tensors{torch::binary_cross_entropy_with_logits(t[0], t[1].sigmoid().detach())};
       }},
      {"kl_div", two,
       [](Tensors& t) {
         return Tensors{torch::kl_div(torch::log_softmax(t[0], 1), torch::softmax(t[1], 1))};
       }},
      {"poisson_nll_loss", two,
       [](Tensors& t) {
         return Tensors{torch::poisson_nll_loss(t[0], t[1].abs(), true, false, 1e-8, 1)};
       }},
      {"soft_margin_loss", two,
       [](Tensors& t) { return Tensors{torch::soft_margin_loss(t[0], t[1].sign().detach())}; }},
      {"margin_ranking_loss", two,
       [](Tensors& t) {
         return Tensors{torch::margin_ranking_loss(t[0], t[1], torch::ones_like(t[0]).detach())};
       }},
      {"multi_margin_loss", scores,
       [=](Tensors& t) { return Tensors{torch::multi_margin_loss(t[0], classes(t))}; }},
      {"multilabel_margin_loss", scores,
       [](Tensors& t) {
         const auto target = integers({6, 5}, 5).to(t[0].device());
         return Tensors{torch::multilabel_margin_loss(t[0], target)};
       }},
      {"triplet_margin_loss",
       {two[0], two[1], normal({6, 5}, 3)},
       [](Tensors& t) { return Tensors{torch::triplet_margin_loss(t[0], t[1], t[2])}; }},
      {"cosine_embedding_loss", two,
       [](Tensors& t) {
         return Tensors{torch::cosine_embedding_loss(t[0], t[1], torch::ones({6}, t[0].options()))};
       }},
      {"ctc_loss",
       {normal({12, 2, 6})},
       [](Tensors& t) {
         const auto targets = integers({2, 4}, 5).add(1).to(t[0].device());
         const std::vector<std::int64_t> in{12, 11};
         const std::vector<std::int64_t> out{4, 3};
         return Tensors{torch::ctc_loss(torch::log_softmax(t[0], 2), targets, in, out)};
       }},
  };
}

}  // namespace plimsoll::simgpu
