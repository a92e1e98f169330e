// SPDX-License-Identifier: Apache-2.0
// Cases that move data, draw numbers, work on lists, or recur.
#include "operator_zoo.h"

namespace plimsoll::simgpu {
namespace {

std::vector<ZooCase> shape_cases() {
  const Tensors x{normal({4, 6, 5})};
  return {
      {"cat stack",
       {normal({4, 6}), normal({4, 6}, 2)},
       [](Tensors& t) {
         return Tensors{torch::cat({t[0], t[1]}, 1), torch::stack({t[0], t[1]}, 1)};
       }},
      {"split and chunk", x,
       [](Tensors& t) {
         const auto parts = t[0].split(2, 1);
         return Tensors{parts[0] * parts[2], t[0].chunk(3, 1)[1].exp()};
       }},
      {"permute reshape", x,
       [](Tensors& t) { return Tensors{t[0].permute({2, 0, 1}).reshape({5, 24}).mul(2)}; }},
      {"expand repeat",
       {normal({4, 1, 5})},
       [](Tensors& t) { return Tensors{t[0].expand({4, 3, 5}).mul(2), t[0].repeat({2, 2, 1})}; }},
      {"flip roll rot90", x,
       [](Tensors& t) { return Tensors{t[0].flip({1}), t[0].roll(2, 1), t[0].rot90(1, {0, 1})}; }},
      {"unfold view",
       {normal({4, 12})},
       [](Tensors& t) { return Tensors{t[0].unfold(1, 4, 2).mul(2)}; }},
      {"as_strided",
       {normal({30})},
       [](Tensors& t) { return Tensors{t[0].as_strided({5, 4}, {5, 1}, 2).mul(3)}; }},
      {"diagonal tril triu",
       {normal({6, 6})},
       [](Tensors& t) {
         return Tensors{t[0].diagonal(1).mul(2), t[0].tril(), t[0].triu(1), t[0].trace()};
       }},
      {"diag_embed", {normal({3, 4})}, [](Tensors& t) { return Tensors{t[0].diag_embed()}; }},
      {"tensordot kron",
       {normal({3, 4}), normal({4, 2}, 2)},
       [](Tensors& t) {
         return Tensors{torch::tensordot(t[0], t[1], {1}, {0}), torch::kron(t[0], t[1])};
       }},
      {"views written in place", x,
       [](Tensors& t) {
         torch::Tensor y = t[0].clone();
         y.select(0, 1).mul_(2);
         y.narrow(1, 2, 2).add_(1);
         y.transpose(0, 2)[0].zero_();
         return Tensors{y};
       }},
      {"meshgrid cartesian",
       {normal({4}), normal({3}, 2)},
       [](Tensors& t) {
         const auto grid = torch::meshgrid({t[0], t[1]}, "ij");
         return Tensors{grid[0] * grid[1], torch::cartesian_prod({t[0], t[1]})};
       }},
      {"constant tensors", x,
       [](Tensors& t) {
         const auto options = t[0].options();
         return Tensors{torch::arange(10, options), torch::linspace(0, 1, 7, options),
                        torch::eye(4, options), torch::full({3}, 2.5, options),
                        torch::tril_indices(4, 4, 0, options.dtype(torch::kLong))};
       }},
  };
}

std::vector<ZooCase> index_cases() {
  const Tensors x{normal({6, 5})};
  const auto rows = [](const Tensors& t) { return integers({4}, 6).to(t[0].device()); };
  return {
      {"index_select", x, [=](Tensors& t) { return Tensors{t[0].index_select(0, rows(t))}; }},
      {"gather", x,
       [](Tensors& t) { return Tensors{t[0].gather(1, integers({6, 3}, 5).to(t[0].device()))}; }},
      {"take take_along_dim", x,
       [](Tensors& t) {
         const auto at = integers({6, 5}, 5).to(t[0].device());
         return Tensors{t[0].take(at), t[0].take_along_dim(at, 1)};
       }},
      {"index with tensors", x, [=](Tensors& t) { return Tensors{t[0].index({rows(t)})}; }},
      {"index with host tensors", x,
       [](Tensors& t) { return Tensors{t[0].index({integers({4}, 6)})}; }},
      {"index_put",
       {normal({6, 5}), normal({4, 5}, 2)},
       [=](Tensors& t) { return Tensors{t[0].index_put({rows(t)}, t[1], true)}; }},
      {"index_add index_copy",
       {normal({6, 5}), normal({4, 5}, 2)},
       [=](Tensors& t) {
         const auto at = torch::arange(4, rows(t).options());
         return Tensors{t[0].index_add(0, rows(t), t[1]), t[0].index_copy(0, at, t[1])};
       }},
      {"index_fill", x, [=](Tensors& t) { return Tensors{t[0].index_fill(0, rows(t), 1.5)}; }},
      {"scatter",
       {normal({6, 5}), normal({6, 5}, 2)},
       [](Tensors& t) {
         const auto at =
             torch::arange(5, torch::TensorOptions().dtype(torch::kLong).device(t[0].device()))
                 .expand({6, 5});
         return Tensors{t[0].scatter(1, at.flip({1}), t[1]), t[0].scatter_add(1, at, t[1])};
       }},
      {"scatter_reduce",
       {normal({6, 5}), normal({6, 5}, 2)},
       [](Tensors& t) {
         const auto at = integers({6, 5}, 5).to(t[0].device());
         return Tensors{t[0].scatter_reduce(1, at, t[1], "amax")};
       }},
      {"masked_fill masked_select", x,
       [](Tensors& t) {
         return Tensors{t[0].masked_fill(t[0] > 0, 2), t[0].masked_select(t[0] > 0)};
       }},
      {"masked_scatter",
       {normal({6, 5}), normal({30}, 2)},
       [](Tensors& t) { return Tensors{t[0].masked_scatter(t[0].detach() > 0, t[1])}; }},
      {"nonzero unique bincount",
       {integers({12}, 5)},
       [](Tensors& t) {
         return Tensors{t[0].nonzero(), std::get<0>(torch::_unique2(t[0])), t[0].bincount()};
       }},
      {"searchsorted bucketize", x,
       [](Tensors& t) {
         const auto edges = torch::linspace(-1, 1, 5, t[0].options());
         return Tensors{torch::searchsorted(edges, t[0].detach()),
                        torch::bucketize(t[0].detach(), edges)};
       }},
      {"one_hot", {integers({6}, 4)}, [](Tensors& t) { return Tensors{torch::one_hot(t[0], 4)}; }},
      {"repeat_interleave", x,
       [](Tensors& t) {
         return Tensors{t[0].repeat_interleave(2, 1),
                        t[0].repeat_interleave(integers({6}, 3).to(t[0].device()), 0)};
       }},
      {"histc", x, [](Tensors& t) { return Tensors{t[0].detach().histc(8, -2, 2)}; }},
  };
}

}  // namespace

std::vector<ZooCase> indexing_cases() {
  std::vector<ZooCase> all = shape_cases();
  for (ZooCase& one : index_cases()) all.push_back(std::move(one));
  return all;
}

std::vector<ZooCase> random_cases() {
  const Tensors x{normal({40, 30})};
  return {
      {"rand randn randint", x,
       [](Tensors& t) {
         const auto options = t[0].options();
         return Tensors{torch::rand({50}, options), torch::randn({50}, options),
                        torch::randint(0, 100, {50}, options), torch::randperm(30, options)};
       }},
      {"uniform normal exponential", x,
       [](Tensors& t) {
         torch::Tensor y = torch::empty_like(t[0]);
         return Tensors{y.uniform_(-1, 2).clone(), y.normal_(1, 2).clone(),
                        y.exponential_().clone(),  y.cauchy_().clone(),
                        y.geometric_(0.3).clone(), y.log_normal_().clone()};
       }},
      {"bernoulli", x,
       [](Tensors& t) {
         return Tensors{t[0].detach().sigmoid().bernoulli(), torch::bernoulli(t[0].detach(), 0.3)};
       }},
      {"multinomial",
       {normal({4, 10}).abs()},
       [](Tensors& t) {
         return Tensors{t[0].detach().multinomial(3), t[0].detach().multinomial(12, true)};
       }},
      {"dropout 0.1", x, [](Tensors& t) { return Tensors{torch::dropout(t[0], 0.1, true)}; }},
      {"dropout 0.25", x, [](Tensors& t) { return Tensors{torch::dropout(t[0], 0.25, true)}; }},
      {"dropout 0.3", x, [](Tensors& t) { return Tensors{torch::dropout(t[0], 0.3, true)}; }},
      {"dropout 0.5", x, [](Tensors& t) { return Tensors{torch::dropout(t[0], 0.5, true)}; }},
      {"dropout off", x, [](Tensors& t) { return Tensors{torch::dropout(t[0], 0.5, false)}; }},
      {"feature and alpha dropout",
       {normal({8, 6, 4})},
       [](Tensors& t) {
         return Tensors{torch::feature_dropout(t[0], 0.3, true),
                        torch::alpha_dropout(t[0], 0.2, true)};
       }},
      {"rrelu", x, [](Tensors& t) { return Tensors{torch::rrelu(t[0], 0.1, 0.3, true)}; }},
      {"poisson binomial",
       {normal({8, 6}).abs().mul(5)},
       [](Tensors& t) {
         const auto rate = t[0].detach();
         return Tensors{torch::poisson(rate),
                        torch::binomial(rate.round(), torch::full_like(rate, 0.4)),
                        torch::_standard_gamma(rate.add(1))};
       }},
  };
}

std::vector<ZooCase> list_cases() {
  const Tensors lists{normal({4, 3}),    normal({5}, 2), normal({2, 2}, 3),
                      normal({4, 3}, 4), normal({5}, 5), normal({2, 2}, 6)};
  return {
      {"foreach arithmetic", lists,
       [](Tensors& t) {
         const Tensors a{t[0], t[1], t[2]};
         const Tensors b{t[3], t[4], t[5]};
         Tensors all = torch::_foreach_add(a, b);
         for (auto& y : torch::_foreach_mul(a, 2.0)) all.push_back(y);
         for (auto& y : torch::_foreach_norm(a)) all.push_back(y);
         for (auto& y : torch::_foreach_addcmul(a, b, b, 0.5)) all.push_back(y);
         return all;
       }},
      {"foreach in place", lists,
       [](Tensors& t) {
         const Tensors a{t[0].detach().clone(), t[1].detach().clone()};
         const Tensors b{t[3].detach(), t[4].detach()};
         torch::_foreach_mul_(a, 0.9);
         torch::_foreach_add_(a, b, 0.1);
         torch::_foreach_lerp_(a, b, 0.3);
         torch::_foreach_sqrt_(torch::_foreach_abs(a));
         return a;
       }},
      {"fused adam", lists,
       [](Tensors& t) {
         const auto copies = [&](std::size_t from) {
           return Tensors{t[from].detach().clone(), t[from + 1].detach().clone()};
         };
         Tensors parameters = copies(0);
         const Tensors gradients = copies(3);
         Tensors mean{torch::zeros_like(parameters[0]), torch::zeros_like(parameters[1])};
         Tensors variance{torch::zeros_like(parameters[0]), torch::zeros_like(parameters[1])};
         const Tensors steps{torch::ones({}, t[0].options()), torch::ones({}, t[0].options())};
         torch::_fused_adam_(parameters, gradients, mean, variance, {}, steps, 0.001, 0.9, 0.999,
                             0.01, 1e-8, false, false);
         return Tensors{parameters[0], parameters[1], mean[0], variance[1]};
       }},
      {"fused sgd", lists,
       [](Tensors& t) {
         Tensors parameters{t[0].detach().clone()};
         const Tensors gradients{t[3].detach()};
         Tensors momentum{torch::zeros_like(parameters[0])};
         torch::_fused_sgd_(parameters, gradients, momentum, 0.01, 0.9, 0.1, 0.0, true, false,
                            true);
         return Tensors{parameters[0], momentum[0]};
       }},
      {"unscale gradients", lists,
       [](Tensors& t) {
         Tensors gradients{t[0].detach().clone(), t[1].detach().clone()};
         torch::Tensor found = torch::zeros({1}, t[0].options());
         torch::_amp_foreach_non_finite_check_and_unscale_(gradients, found,
                                                           torch::full({1}, 0.5, t[0].options()));
         return Tensors{gradients[0], gradients[1], found};
       }},
      {"clip gradients",
       {normal({4, 3}), normal({5}, 2)},
       [](Tensors& t) {
         const auto loss = (t[0].pow(2).sum() + t[1].pow(3).sum());
         return Tensors{loss, torch::stack({t[0].norm(), t[1].norm()}).norm()};
       }},
  };
}

std::vector<ZooCase> recurrent_cases() {
  const std::string why =
      "LibTorch multiplies the inputs of all time steps at once, on the CPU only";
  // Weights as modules have them: input, hidden, both biases.
  const auto weights = [](std::int64_t gates) {
    return Tensors{normal({5, 3, 6}),
                   normal({1, 3, 4}, 2),
                   normal({gates * 4, 6}, 3).mul(0.3),
                   normal({gates * 4, 4}, 4).mul(0.3),
                   normal({gates * 4}, 5),
                   normal({gates * 4}, 6)};
  };
  const auto parameters = [](const Tensors& t) { return Tensors{t[2], t[3], t[4], t[5]}; };
  return {
      {"rnn", weights(1),
       [=](Tensors& t) {
         const auto [y, h] =
             torch::rnn_tanh(t[0], t[1], parameters(t), true, 1, 0.0, true, false, false);
         return Tensors{y, h};
       },
       why},
      {"gru", weights(3),
       [=](Tensors& t) {
         const auto [y, h] =
             torch::gru(t[0], t[1], parameters(t), true, 1, 0.0, true, false, false);
         return Tensors{y, h};
       },
       why},
      {"lstm", weights(4),
       [=](Tensors& t) {
         const auto [y, h, c] =
             torch::lstm(t[0], {t[1], t[1] * 0.5}, parameters(t), true, 1, 0.0, true, false, false);
         return Tensors{y, h, c};
       },
       why},
      {"lstm_cell", weights(4),
       [](Tensors& t) {
         const auto [h, c] =
             torch::lstm_cell(t[0][0], {t[1][0], t[1][0] * 0.5}, t[2], t[3], t[4], t[5]);
         return Tensors{h, c};
       }},
      {"lstm_cell without biases", weights(4),
       [](Tensors& t) {
         const auto [h, c] = torch::lstm_cell(t[0][0], {t[1][0], t[1][0] * 0.5}, t[2], t[3]);
         return Tensors{h, c};
       }},
      {"gru_cell", weights(3),
       [](Tensors& t) {
         return Tensors{torch::gru_cell(t[0][0], t[1][0], t[2], t[3], t[4], t[5])};
       }},
      {"gru_cell without biases", weights(3),
       [](Tensors& t) { return Tensors{torch::gru_cell(t[0][0], t[1][0], t[2], t[3])}; }},
      {"rnn_cell", weights(1),
       [](Tensors& t) {
         return Tensors{torch::rnn_relu_cell(t[0][0], t[1][0], t[2], t[3], t[4], t[5])};
       }},
  };
}

}  // namespace plimsoll::simgpu
