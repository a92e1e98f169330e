// SPDX-License-Identifier: Apache-2.0
#include "operator_zoo.h"

namespace plimsoll::simgpu {
namespace {

using Unary = torch::Tensor (*)(const torch::Tensor&);

std::vector<ZooCase> unary_cases() {
  const std::vector<std::pair<std::string, Unary>> functions = {
      {"exp", [](const torch::Tensor& x) { return x.exp(); }},
      {"expm1", [](const torch::Tensor& x) { return x.expm1(); }},
      {"log of abs", [](const torch::Tensor& x) { return x.abs().log(); }},
      {"log1p of abs", [](const torch::Tensor& x) { return x.abs().log1p(); }},
      {"sin and cos", [](const torch::Tensor& x) { return x.sin() + x.cos(); }},
      {"tan", [](const torch::Tensor& x) { return x.tan(); }},
      {"atan", [](const torch::Tensor& x) { return x.atan(); }},
      {"sinh", [](const torch::Tensor& x) { return x.sinh(); }},
      {"tanh", [](const torch::Tensor& x) { return x.tanh(); }},
      {"sigmoid", [](const torch::Tensor& x) { return x.sigmoid(); }},
      {"sqrt of abs", [](const torch::Tensor& x) { return x.abs().sqrt(); }},
      {"rsqrt of abs", [](const torch::Tensor& x) { return x.abs().add(0.1).rsqrt(); }},
      {"reciprocal", [](const torch::Tensor& x) { return x.reciprocal(); }},
      {"erf", [](const torch::Tensor& x) { return x.erf(); }},
      {"lgamma", [](const torch::Tensor& x) { return x.abs().add(1).lgamma(); }},
      {"pow", [](const torch::Tensor& x) { return x.pow(3); }},
      {"sinc", [](const torch::Tensor& x) { return x.sinc(); }},
      {"relu", [](const torch::Tensor& x) { return x.relu(); }},
      {"relu in place", [](const torch::Tensor& x) { return x.mul(2).relu_(); }},
      {"leaky_relu", [](const torch::Tensor& x) { return torch::leaky_relu(x, 0.1); }},
      {"elu", [](const torch::Tensor& x) { return torch::elu(x); }},
      {"selu", [](const torch::Tensor& x) { return torch::selu(x); }},
      {"celu", [](const torch::Tensor& x) { return torch::celu(x); }},
      {"gelu", [](const torch::Tensor& x) { return torch::gelu(x); }},
      {"gelu tanh", [](const torch::Tensor& x) { return torch::gelu(x, "tanh"); }},
      {"silu", [](const torch::Tensor& x) { return torch::silu(x); }},
      {"mish", [](const torch::Tensor& x) { return torch::mish(x); }},
      {"hardswish", [](const torch::Tensor& x) { return torch::hardswish(x); }},
      {"hardsigmoid", [](const torch::Tensor& x) { return torch::hardsigmoid(x); }},
      {"hardtanh", [](const torch::Tensor& x) { return torch::hardtanh(x); }},
      {"softplus", [](const torch::Tensor& x) { return torch::softplus(x); }},
      {"softshrink", [](const torch::Tensor& x) { return torch::softshrink(x); }},
      {"log_sigmoid", [](const torch::Tensor& x) { return torch::log_sigmoid(x); }},
      {"glu", [](const torch::Tensor& x) { return torch::glu(x, 1); }},
      {"softmax", [](const torch::Tensor& x) { return torch::softmax(x, 1); }},
      {"log_softmax", [](const torch::Tensor& x) { return torch::log_softmax(x, 0); }},
      {"clamp", [](const torch::Tensor& x) { return x.clamp(-0.5, 0.5); }},
      {"round and trunc", [](const torch::Tensor& x) { return x.round() + x.trunc() * x; }},
  };
  std::vector<ZooCase> cases;
  for (const auto& [name, function] : functions) {
    cases.push_back({name, {normal({7, 130})}, [function = function](Tensors& t) {
                       return Tensors{function(t[0])};
                     }});
  }
  return cases;
}

std::vector<ZooCase> binary_cases() {
  const Tensors two{normal({5, 6}), normal({5, 6}, 2)};
  return {
      {"add broadcast",
       {normal({5, 6}), normal({6}, 2)},
       [](Tensors& t) { return Tensors{t[0].add(t[1], 0.5)}; }},
      {"sub mul div", two, [](Tensors& t) { return Tensors{(t[0] - t[1]) * t[0] / t[1]}; }},
      {"atan2", two, [](Tensors& t) { return Tensors{torch::atan2(t[0], t[1])}; }},
      {"hypot", two, [](Tensors& t) { return Tensors{torch::hypot(t[0], t[1])}; }},
      {"maximum minimum", two,
       [](Tensors& t) { return Tensors{torch::maximum(t[0], t[1]), torch::minimum(t[0], t[1])}; }},
      {"where", two, [](Tensors& t) { return Tensors{torch::where(t[0] > t[1], t[0], t[1])}; }},
      {"lerp",
       {two[0], two[1], normal({5, 6}, 3)},
       [](Tensors& t) { return Tensors{torch::lerp(t[0], t[1], t[2])}; }},
      {"addcmul addcdiv",
       {two[0], two[1], normal({5, 6}, 3).abs().add(1)},
       [](Tensors& t) {
         return Tensors{torch::addcmul(t[0], t[1], t[2], 0.3), torch::addcdiv(t[0], t[1], t[2])};
       }},
      {"remainder fmod", two,
       [](Tensors& t) { return Tensors{t[0].remainder(t[1].detach()), t[0].fmod(t[1].detach())}; }},
      {"pow of tensors", two, [](Tensors& t) { return Tensors{t[0].abs().pow(t[1])}; }},
      {"xlogy", two, [](Tensors& t) { return Tensors{torch::xlogy(t[0], t[1].abs())}; }},
      {"logaddexp", two, [](Tensors& t) { return Tensors{torch::logaddexp(t[0], t[1])}; }},
      {"prelu",
       {normal({3, 4, 5}), normal({4}, 2)},
       [](Tensors& t) { return Tensors{torch::prelu(t[0], t[1])}; }},
      {"comparisons", two,
       [](Tensors& t) {
         return Tensors{t[0].gt(t[1]), t[0].eq(t[1]), t[0].isnan(), t[0].logical_and(t[1])};
       }},
  };
}

}  // namespace

std::vector<ZooCase> elementwise_cases() {
  std::vector<ZooCase> all = unary_cases();
  for (ZooCase& one : binary_cases()) all.push_back(std::move(one));
  return all;
}

std::vector<ZooCase> reduction_cases() {
  const Tensors x{normal({6, 7, 8})};
  return {
      {"sum", x,
       [](Tensors& t) { return Tensors{t[0].sum(), t[0].sum(torch::IntArrayRef({0, 2}), true)}; }},
      {"mean", x, [](Tensors& t) { return Tensors{t[0].mean(1)}; }},
      {"prod", x, [](Tensors& t) { return Tensors{t[0].prod(1)}; }},
      {"var and std", x, [](Tensors& t) { return Tensors{t[0].var(1), t[0].std(2)}; }},
      {"max and min", x,
       [](Tensors& t) { return Tensors{std::get<0>(t[0].max(1)), t[0].min(), t[0].amax({0})}; }},
      {"median", x, [](Tensors& t) { return Tensors{std::get<0>(t[0].median(1))}; }},
      {"logsumexp", x, [](Tensors& t) { return Tensors{t[0].logsumexp({1})}; }},
      {"norms", x,
       [](Tensors& t) { return Tensors{t[0].norm(), t[0].norm(1, 1), t[0].norm(3, {2})}; }},
      {"cumsum cumprod", x, [](Tensors& t) { return Tensors{t[0].cumsum(1), t[0].cumprod(2)}; }},
      {"cummax", x, [](Tensors& t) { return Tensors{std::get<0>(t[0].cummax(1))}; }},
      {"logcumsumexp", x, [](Tensors& t) { return Tensors{t[0].logcumsumexp(1)}; }},
      {"argmax all any", x,
       [](Tensors& t) { return Tensors{t[0].argmax(1), t[0].gt(0).all(1), t[0].gt(0).any()}; }},
      {"sort topk kthvalue", x,
       [](Tensors& t) {
         return Tensors{std::get<0>(t[0].sort(1)), std::get<0>(t[0].topk(3, 2)),
                        std::get<0>(t[0].kthvalue(2, 1))};
       }},
      {"cdist",
       {normal({5, 4}), normal({6, 4}, 2)},
       [](Tensors& t) { return Tensors{torch::cdist(t[0], t[1])}; }},
      {"cosine_similarity",
       {normal({5, 4}), normal({5, 4}, 2)},
       [](Tensors& t) { return Tensors{torch::cosine_similarity(t[0], t[1])}; }},
      {"renorm", {normal({5, 4})}, [](Tensors& t) { return Tensors{t[0].renorm(2, 0, 1.0)}; }},
  };
}

std::vector<ZooCase> linear_algebra_cases() {
  const Tensors square{normal({3, 5, 5})};
  const auto definite = [](const torch::Tensor& a) {
    return a.matmul(a.mT()) + 2 * torch::eye(5, a.options());
  };
  return {
      {"mm addmm",
       {normal({5, 6}), normal({6, 7}, 2), normal({7}, 3)},
       [](Tensors& t) { return Tensors{t[0].mm(t[1]), torch::addmm(t[2], t[0], t[1], 0.5, 2)}; }},
      {"bmm baddbmm",
       {normal({3, 5, 6}), normal({3, 6, 7}, 2), normal({3, 5, 7}, 3)},
       [](Tensors& t) { return Tensors{t[0].bmm(t[1]), torch::baddbmm(t[2], t[0], t[1])}; }},
      {"matmul broadcast",
       {normal({2, 3, 5, 6}), normal({6, 7}, 2)},
       [](Tensors& t) { return Tensors{t[0].matmul(t[1])}; }},
      {"mv dot addmv",
       {normal({5, 6}), normal({6}, 2), normal({5}, 3)},
       [](Tensors& t) { return Tensors{t[0].mv(t[1]), t[1].dot(t[1]), t[2].addmv(t[0], t[1])}; }},
      {"outer addr",
       {normal({5}), normal({6}, 2), normal({5, 6}, 3)},
       [](Tensors& t) { return Tensors{t[0].outer(t[1]), t[2].addr(t[0], t[1])}; }},
      {"einsum",
       {normal({3, 4, 5}), normal({3, 5, 6}, 2)},
       [](Tensors& t) { return Tensors{torch::einsum("bij,bjk->bik", {t[0], t[1]})}; }},
      {"inverse and determinant", square,
       [=](Tensors& t) {
         return Tensors{torch::linalg_inv(definite(t[0])), torch::linalg_det(definite(t[0]))};
       }},
      {"cholesky", square,
       [=](Tensors& t) { return Tensors{torch::linalg_cholesky(definite(t[0]))}; }},
      {"solve",
       {normal({3, 5, 5}), normal({3, 5, 2}, 2)},
       [=](Tensors& t) { return Tensors{torch::linalg_solve(definite(t[0]), t[1])}; }},
      {"triangular solve",
       {normal({3, 5, 5}), normal({3, 5, 2}, 2)},
       [=](Tensors& t) {
         const auto lower = torch::linalg_cholesky(definite(t[0]));
         return Tensors{torch::linalg_solve_triangular(lower, t[1], false)};
       }},
      {"qr",
       {normal({6, 4})},
       [](Tensors& t) { return Tensors{std::get<1>(torch::linalg_qr(t[0]))}; }},
      {"eigh", square,
       [=](Tensors& t) { return Tensors{std::get<0>(torch::linalg_eigh(definite(t[0])))}; }},
      {"singular values",
       {normal({5, 4})},
       [](Tensors& t) { return Tensors{torch::linalg_svdvals(t[0])}; }},
      {"matrix_exp",
       {normal({3, 4, 4}).mul(0.1)},
       [](Tensors& t) { return Tensors{torch::matrix_exp(t[0])}; }},
      {"matrix norm", square, [](Tensors& t) { return Tensors{torch::linalg_matrix_norm(t[0])}; }},
      {"rfft and back",
       {normal({4, 16})},
       [](Tensors& t) {
         const auto spectrum = torch::fft_rfft(t[0]);
         return Tensors{spectrum.abs(), torch::fft_irfft(spectrum.mul(spectrum))};
       }},
      {"fft2",
       {normal({2, 8, 8})},
       [](Tensors& t) {
         return Tensors{torch::real(torch::fft_fft2(t[0])), torch::fft_fft2(t[0]).abs()};
       }},
      {"stft",
       {normal({2, 64})},
       [](Tensors& t) {
         const auto window = torch::hann_window(16, t[0].options());
         return Tensors{torch::view_as_real(
             torch::stft(t[0], 16, 8, 16, window, true, "reflect", false, true, true))};
       }},
  };
}

std::vector<ZooCase> type_cases() {
  const auto cast = [](torch::ScalarType type) {
    return [type](Tensors& t) {
      const auto a = t[0].to(type);
      const auto b = t[1].to(type);
      return Tensors{torch::gelu(a.matmul(b.t())).softmax(1), (a * b).sum(0), a.add(b, 2)};
    };
  };
  const auto layers = [](torch::ScalarType type) {
    return [type](Tensors& t) {
      const auto x = t[0].to(type);
      const auto y = torch::conv2d(x, t[1].to(type), t[2].to(type), 1, 1);
      return Tensors{torch::max_pool2d(y.relu(), 2), torch::layer_norm(y, {9})};
    };
  };
  const Tensors two{normal({8, 16}), normal({8, 16}, 2)};
  const Tensors image{normal({2, 4, 9, 9}), normal({6, 4, 3, 3}, 2), normal({6}, 3)};
  return {
      {"bfloat16", two, cast(torch::kBFloat16)},
      {"half", two, cast(torch::kHalf)},
      {"double",
       {normal({8, 16}, 1, torch::kDouble), normal({8, 16}, 2, torch::kDouble)},
       cast(torch::kDouble)},
      {"bfloat16 layers", image, layers(torch::kBFloat16)},
      {"double layers", image, layers(torch::kDouble)},
      {"casts", two,
       [](Tensors& t) {
         return Tensors{t[0].to(torch::kInt), t[0].to(torch::kBool), t[1].to(torch::kDouble)};
       }},
      {"integers",
       {integers({6, 5}, 100), integers({6, 5}, 7, 2)},
       [](Tensors& t) {
         return Tensors{t[0].bitwise_xor(t[1]), t[0].floor_divide(t[1].add(1)), t[0].cumsum(1),
                        t[0].bitwise_left_shift(t[1])};
       }},
      {"complex products", two,
       [](Tensors& t) {
         const auto z = torch::complex(t[0], t[1]);
         return Tensors{torch::view_as_real(z.mul(z).exp()), z.abs(), z.angle()};
       }},
      {"conjugates", two,
       [](Tensors& t) {
         const auto z = torch::complex(t[0], t[1]);
         return Tensors{torch::view_as_real(z.conj().matmul(z.t()).resolve_conj()),
                        torch::imag(z.conj()), z.conj().clone().abs()};
       }},
      {"complex polar", two,
       [](Tensors& t) { return Tensors{torch::view_as_real(torch::polar(t[0].abs(), t[1]))}; }},
      {"complex buffers",
       {integers({4, 3}, 9)},
       [](Tensors& t) {
         const auto z = torch::complex(t[0].to(torch::kFloat), t[0].to(torch::kFloat) + 1);
         return Tensors{z.conj().to(torch::kCPU), z.mul(z), z.mH().contiguous()};
       }},
  };
}

}  // namespace plimsoll::simgpu
