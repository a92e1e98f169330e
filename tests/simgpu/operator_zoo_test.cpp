// SPDX-License-Identifier: Apache-2.0
// Every case runs forward and backward on the CPU and twice on the device, the second time without
// waiting, and gives the same bits, or says why not and gives the same values.
#include "operator_zoo.h"

#include <cmath>

#include "device_fixture.h"

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

// Results, then the inputs' gradients; all on the CPU.
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

class OperatorZoo : public OnDevice {
 protected:
  void expect_equal(const std::vector<ZooCase>& cases) {
    for (const ZooCase& one : cases) {
      SCOPED_TRACE(one.name);
      const Tensors on_cpu = run_on(one, at::kCPU);
      EXPECT_EQ(difference(one, on_cpu, run_on(one, sim())), "");
      const CallCounts before = call_counts();
      EXPECT_EQ(difference(one, on_cpu, run_on(one, sim())), "") << "the second time";
      EXPECT_EQ(call_counts().first_seen, before.first_seen) << "nothing is new the second time";
    }
  }
};

TEST_F(OperatorZoo, Layers) { expect_equal(layer_cases()); }
TEST_F(OperatorZoo, Losses) { expect_equal(loss_cases()); }
TEST_F(OperatorZoo, Elementwise) { expect_equal(elementwise_cases()); }
TEST_F(OperatorZoo, Reductions) { expect_equal(reduction_cases()); }
TEST_F(OperatorZoo, ShapesAndIndexing) { expect_equal(indexing_cases()); }
TEST_F(OperatorZoo, LinearAlgebra) { expect_equal(linear_algebra_cases()); }
TEST_F(OperatorZoo, Types) { expect_equal(type_cases()); }
TEST_F(OperatorZoo, Random) { expect_equal(random_cases()); }
TEST_F(OperatorZoo, Lists) { expect_equal(list_cases()); }
TEST_F(OperatorZoo, Recurrent) { expect_equal(recurrent_cases()); }

TEST_F(OperatorZoo, HasItsNumberOfCases) {
  std::size_t count = 0;
  std::size_t exceptions = 0;
  for (auto&& cases :
       {layer_cases(), loss_cases(), elementwise_cases(), reduction_cases(), indexing_cases(),
        linear_algebra_cases(), type_cases(), random_cases(), list_cases(), recurrent_cases()}) {
    count += cases.size();
    for (const ZooCase& one : cases) exceptions += one.why_not_bits.empty() ? 0 : 1;
  }
  EXPECT_GE(count, 226U);
  EXPECT_EQ(exceptions, 3U) << "rnn, gru and lstm over several time steps";
}

}  // namespace
}  // namespace plimsoll::simgpu
