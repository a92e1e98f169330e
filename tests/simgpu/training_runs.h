// SPDX-License-Identifier: Apache-2.0
// Trains a model of the zoo on a device, as a user would, and keeps what it leaves behind.
//
// Nouns: TrainingRun, Outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <torch/types.h>

namespace plimsoll::simgpu {

enum class OptimizerName : std::uint8_t { kSgd, kAdam, kAdamW };

struct TrainingRun {
  std::string model;  // as models::parse_model reads it
  OptimizerName optimizer = OptimizerName::kSgd;
  bool is_autocast = false;  // bf16
  int steps = 3;
  std::int64_t batch = 2;
};

// Losses, parameters, gradients, buffers and the device's generator, on the CPU.
using Outcome = std::vector<std::pair<std::string, torch::Tensor>>;

// Makes what lives around each step.
using StepScope = std::function<std::shared_ptr<void>()>;

Outcome train(const TrainingRun& run, const torch::Device& device, const StepScope& scope = {});

// The name of the first tensor whose bits differ; "" if there is none.
std::string first_difference(const Outcome& left, const Outcome& right);
// The largest difference of two elements, relative to the larger of one and their tensor's largest.
double largest_difference(const Outcome& left, const Outcome& right);

// The text of a model of the zoo at the size for tests.
std::string small_model(const std::string& name);
std::vector<std::string> every_model();

}  // namespace plimsoll::simgpu
