// SPDX-License-Identifier: Apache-2.0
// Small programs of one or a few operators, each with its backward.
//
// Nouns: ZooCase.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace plimsoll::simgpu {

using Tensors = std::vector<torch::Tensor>;

struct ZooCase {
  std::string name;
  // On the CPU; those of floating point are differentiated.
  Tensors inputs;
  std::function<Tensors(Tensors&)> run;
  // "" where the device has to give the CPU's bits; else why it gives the same values only.
  std::string why_not_bits = {};
};

// Numbers that depend on the shape and the seed alone.
torch::Tensor normal(torch::IntArrayRef sizes, std::uint64_t seed = 1,
                     torch::ScalarType type = torch::kFloat);
torch::Tensor integers(torch::IntArrayRef sizes, std::int64_t below, std::uint64_t seed = 1);

// Forward and backward: the results, then the inputs' gradients; all on the CPU.
Tensors run_on(const ZooCase& one, const torch::Device& device);
// What differs between two runs that should not; "" where nothing does.
std::string difference(const ZooCase& one, const Tensors& left, const Tensors& right);

std::vector<ZooCase> layer_cases();
std::vector<ZooCase> loss_cases();
std::vector<ZooCase> elementwise_cases();
std::vector<ZooCase> reduction_cases();
std::vector<ZooCase> indexing_cases();
std::vector<ZooCase> linear_algebra_cases();
std::vector<ZooCase> type_cases();
std::vector<ZooCase> random_cases();
std::vector<ZooCase> list_cases();
std::vector<ZooCase> recurrent_cases();

}  // namespace plimsoll::simgpu
