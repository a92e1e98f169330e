// SPDX-License-Identifier: Apache-2.0
#include "device_fixture.h"
#include "operator_zoo.h"

namespace plimsoll::simgpu {

torch::Tensor normal(torch::IntArrayRef sizes, std::uint64_t seed, torch::ScalarType type) {
  return torch::randn(sizes, at::detail::createCPUGenerator(seed),
                      torch::TensorOptions().dtype(type));
}

torch::Tensor integers(torch::IntArrayRef sizes, std::int64_t below, std::uint64_t seed) {
  return torch::randint(below, sizes, at::detail::createCPUGenerator(seed),
                        torch::TensorOptions().dtype(torch::kLong));
}

namespace {

constexpr double kTolerance = 1e-5;

}  // namespace

Tensors run_on(const ZooCase& one, const torch::Device& device) {
  torch::manual_seed(23);
  Tensors inputs;
  for (const torch::Tensor& input : one.inputs) {
    inputs.push_back(input.to(device, false, true).requires_grad_(input.is_floating_point()));
  }
  Tensors results = one.run(inputs);
  Tensors roots;
  Tensors cotangents;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    roots.push_back(results[i]);
    const auto cotangent = normal(results[i].sizes(), 100 + i).to(results[i].scalar_type());
    cotangents.push_back(cotangent.to(device));
  }
  if (!roots.empty()) torch::autograd::backward(roots, cotangents);
  Tensors kept;
  for (const torch::Tensor& result : results) kept.push_back(result.detach().cpu());
  for (const torch::Tensor& input : inputs) {
    kept.push_back(input.grad().defined() ? input.grad().cpu() : torch::Tensor());
  }
  return kept;
}

std::string difference(const ZooCase& one, const Tensors& left, const Tensors& right) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (same_bits(left[i], right[i])) continue;
    const std::string what = "tensor " + std::to_string(i) + " of " + std::to_string(left.size());
    if (one.why_not_bits.empty()) return what + " has other bits";
    if (!left[i].defined() || !right[i].defined()) return what + " is missing";
    if (!torch::allclose(left[i], right[i], kTolerance, kTolerance))
      return what + " has other values";
  }
  return "";
}

}  // namespace plimsoll::simgpu
