// SPDX-License-Identifier: Apache-2.0
#include "training_runs.h"

#include <algorithm>
#include <memory>

#include <ATen/autocast_mode.h>

#include "plimsoll/allocator.h"
#include "plimsoll/models/model.h"

#include "device_fixture.h"

namespace plimsoll::simgpu {
namespace {

class Autocast {
 public:
  Autocast(bool on, c10::DeviceType type) : on_(on), type_(type) {
    if (!on_) return;
    at::autocast::set_autocast_enabled(type_, true);
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, false);
  }

 private:
  bool on_;
  c10::DeviceType type_;
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(OptimizerName name,
                                                        std::vector<torch::Tensor> parameters) {
  switch (name) {
    case OptimizerName::kAdam:
      return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                  torch::optim::AdamOptions(0.001));
    case OptimizerName::kAdamW:
      return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                   torch::optim::AdamWOptions(0.001));
    case OptimizerName::kSgd:
      break;
  }
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

void keep(Outcome& outcome, const std::string& name, const torch::Tensor& tensor) {
  if (tensor.defined()) outcome.emplace_back(name, tensor.detach().to(at::kCPU, false, true));
}

}  // namespace

Outcome train(const TrainingRun& run, const torch::Device& device, const StepScope& scope) {
  install_allocator();  // so that the first of two runs has the bits of the second
  const auto model = models::make_model(run.model, 11);
  model->to(device);
  const auto optimizer = make_optimizer(run.optimizer, model->parameters());
  torch::manual_seed(17);
  Outcome outcome;
  for (int step = 0; step < run.steps; ++step) {
    const models::Batch batch =
        models::synthetic_batch(model->shape(), run.batch, static_cast<std::uint64_t>(step));
    torch::Tensor loss;
    {
      const std::shared_ptr<void> around = scope ? scope() : nullptr;
      optimizer->zero_grad();
      {
        const Autocast autocast(run.is_autocast, device.type());
        const torch::Tensor output = model->forward(batch.input.to(device, true));
        loss = models::cross_entropy(output, batch.target.to(device, true));
      }
      loss.backward();
      optimizer->step();
    }
    keep(outcome, "loss " + std::to_string(step), loss);
  }
  for (const auto& parameter : model->named_parameters()) {
    keep(outcome, parameter.key(), parameter.value());
    keep(outcome, "gradient of " + parameter.key(), parameter.value().grad());
  }
  for (const auto& buffer : model->named_buffers()) keep(outcome, buffer.key(), buffer.value());
  keep(outcome, "generator", at::globalContext().defaultGenerator(device).get_state());
  return outcome;
}

std::string first_difference(const Outcome& left, const Outcome& right) {
  if (left.size() != right.size()) return "the number of tensors";
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].first != right[i].first) return left[i].first + " or " + right[i].first;
    if (!same_bits(left[i].second, right[i].second)) return left[i].first;
  }
  return "";
}

double largest_difference(const Outcome& left, const Outcome& right) {
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const torch::Tensor a = left[i].second.to(torch::kDouble);
    const torch::Tensor b = right[i].second.to(torch::kDouble);
    if (a.numel() == 0) continue;
    const double scale = std::max(1.0, a.abs().max().item<double>());
    const double difference = (a - b).abs().max().item<double>() / scale;
    if (!(difference <= largest)) largest = difference;  // NaN too
  }
  return largest;
}

std::string small_model(const std::string& name) {
  for (const models::ModelInfo& info : models::model_list()) {
    if (info.name == name) return info.small;
  }
  return name;
}

std::vector<std::string> every_model() {
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::model_list()) names.push_back(info.name);
  return names;
}

}  // namespace plimsoll::simgpu
