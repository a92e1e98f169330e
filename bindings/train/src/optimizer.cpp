// SPDX-License-Identifier: Apache-2.0
#include "optimizer.h"

#include <map>
#include <utility>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "plimsoll/base/error.h"

namespace plimsoll::train {
namespace {

namespace optim = torch::optim;

std::vector<torch::Tensor> only_tensors(const std::vector<NamedTensor>& named) {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(named.size());
  for (const NamedTensor& item : named) tensors.push_back(item.tensor);
  return tensors;
}

// The state that `tensors` holds for a slot ("optimizer x momentum"), undefined where absent.
class SavedState {
 public:
  explicit SavedState(const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& item : tensors) by_name_[item.name] = item.tensor;
  }
  torch::Tensor take(const NamedTensor& parameter, const std::string& slot) const {
    const auto found = by_name_.find("optimizer " + parameter.name + " " + slot);
    if (found == by_name_.end()) return {};
    if (found->second.sizes() != parameter.tensor.sizes())
      throw InvalidArgument("the saved " + found->first + " has another shape");
    return found->second.clone();
  }

 private:
  std::map<std::string, torch::Tensor> by_name_;
};

class Sgd : public Optimizer {
 public:
  Sgd(const TrainOptions& options, std::vector<NamedTensor> parameters)
      : parameters_(std::move(parameters)),
        optimizer_(only_tensors(parameters_), optim::SGDOptions(learning_rate_of(options))
                                                  .momentum(0.9)
                                                  .weight_decay(options.weight_decay)) {}
  void zero_grad() override { optimizer_.zero_grad(); }
  void step() override { optimizer_.step(); }
  std::vector<NamedTensor> tensors() const override {
    std::vector<NamedTensor> found;
    for (const NamedTensor& parameter : parameters_) {
      const auto state = optimizer_.state().find(parameter.tensor.unsafeGetTensorImpl());
      if (state == optimizer_.state().end()) continue;
      found.push_back({"optimizer " + parameter.name + " momentum",
                       static_cast<optim::SGDParamState&>(*state->second).momentum_buffer()});
    }
    return found;
  }
  std::vector<std::int64_t> counters() const override { return {}; }
  void restore(const std::vector<NamedTensor>& tensors,
               const std::vector<std::int64_t>& counters) override {
    if (!counters.empty()) throw InvalidArgument("SGD has no counters to restore");
    const SavedState saved(tensors);
    for (const NamedTensor& parameter : parameters_) {
      const torch::Tensor momentum = saved.take(parameter, "momentum");
      if (!momentum.defined()) continue;
      auto state = std::make_unique<optim::SGDParamState>();
      state->momentum_buffer(momentum);
      optimizer_.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
    }
  }

 private:
  std::vector<NamedTensor> parameters_;
  mutable optim::SGD optimizer_;
};

template <typename Base, typename Options, typename State>
class AdamLike : public Optimizer {
 public:
  AdamLike(const TrainOptions& options, std::vector<NamedTensor> parameters)
      : parameters_(std::move(parameters)),
        optimizer_(only_tensors(parameters_),
                   Options(learning_rate_of(options)).weight_decay(options.weight_decay)) {}
  void zero_grad() override { optimizer_.zero_grad(); }
  void step() override { optimizer_.step(); }
  std::vector<NamedTensor> tensors() const override {
    std::vector<NamedTensor> found;
    for (const NamedTensor& parameter : parameters_) {
      if (State* state = state_of(parameter)) {
        found.push_back({"optimizer " + parameter.name + " mean", state->exp_avg()});
        found.push_back({"optimizer " + parameter.name + " square", state->exp_avg_sq()});
      }
    }
    return found;
  }
  std::vector<std::int64_t> counters() const override {
    std::vector<std::int64_t> found;
    for (const NamedTensor& parameter : parameters_)
      if (const State* state = state_of(parameter)) found.push_back(state->step());
    return found;
  }
  void restore(const std::vector<NamedTensor>& tensors,
               const std::vector<std::int64_t>& counters) override {
    const SavedState saved(tensors);
    std::size_t next = 0;
    for (const NamedTensor& parameter : parameters_) {
      const torch::Tensor mean = saved.take(parameter, "mean");
      const torch::Tensor square = saved.take(parameter, "square");
      if (!mean.defined() || !square.defined()) continue;
      if (next == counters.size()) throw InvalidArgument("a saved Adam counter is missing");
      auto state = std::make_unique<State>();
      state->step(counters[next++]);
      state->exp_avg(mean);
      state->exp_avg_sq(square);
      optimizer_.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
    }
    if (next != counters.size()) throw InvalidArgument("there are too many saved Adam counters");
  }

 private:
  State* state_of(const NamedTensor& parameter) const {
    const auto found = optimizer_.state().find(parameter.tensor.unsafeGetTensorImpl());
    return found == optimizer_.state().end() ? nullptr : static_cast<State*>(found->second.get());
  }

  std::vector<NamedTensor> parameters_;
  mutable Base optimizer_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options,
                                          const std::vector<NamedTensor>& parameters) {
  switch (options.optimizer) {
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd>(options, parameters);
    case OptimizerKind::kAdam:
      return std::make_unique<AdamLike<optim::Adam, optim::AdamOptions, optim::AdamParamState>>(
          options, parameters);
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamLike<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>>(
          options, parameters);
  }
  throw InternalError("an optimizer of no kind");
}

}  // namespace plimsoll::train
