// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "plimsoll/base/error.h"

#include "loader.h"
#include "optimizer.h"

namespace plimsoll::train {
namespace {

torch::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const torch::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

torch::Tensor fresh_generator_state(std::uint64_t seed) {
  return at::detail::createCPUGenerator(seed).get_state();
}

// Makes the run's generator state the default generator's for a scope. The state moves on only
// where keep() was called; the process's own comes back in any case.
class BorrowedGenerator {
 public:
  explicit BorrowedGenerator(torch::Tensor& own) : own_(own), process_(generator_state()) {
    set_generator_state(own_);
  }
  BorrowedGenerator(const BorrowedGenerator&) = delete;
  BorrowedGenerator& operator=(const BorrowedGenerator&) = delete;
  ~BorrowedGenerator() { set_generator_state(process_); }
  void keep() { own_ = generator_state(); }

 private:
  torch::Tensor& own_;
  torch::Tensor process_;
};

// bf16 autocast on the CPU for a scope; the cache of cast weights ends with it.
class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    if (!on_) return;
    was_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
  }

 private:
  bool on_;
  bool was_enabled_ = false;
};

std::vector<NamedTensor> named(const torch::OrderedDict<std::string, torch::Tensor>& items) {
  std::vector<NamedTensor> found;
  for (const auto& item : items) found.push_back({item.key(), item.value()});
  return found;
}

// Evaluation mode for a scope.
class Evaluation {
 public:
  explicit Evaluation(models::Model& model) : model_(model) { model_.eval(); }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation() { model_.train(); }

 private:
  models::Model& model_;
};

std::optional<Step> begin_step(Session* session) {
  if (session == nullptr) return std::nullopt;
  return session->step();
}

}  // namespace

double learning_rate_of(const TrainOptions& options) {
  if (options.learning_rate > 0) return options.learning_rate;
  return options.optimizer == OptimizerKind::kSgd ? 0.05 : 0.001;
}

Trainer::Trainer(const TrainOptions& options, std::shared_ptr<const data::Dataset> data)
    : options_(options), generator_state_(fresh_generator_state(options.seed)) {
  const models::Settings settings = models::parse_model(options.model);
  canonical_model_ = settings.canonical();
  std::optional<std::uint64_t> weights_seed;
  if (!settings.is_given("seed")) weights_seed = options.seed;
  model_ = models::make_model(settings, weights_seed);
  loader_ = std::make_unique<Loader>(std::move(data), model_->shape(), options.batch, options.seed);
  optimizer_ = make_optimizer(options, named(model_->named_parameters()));
}

Trainer::~Trainer() = default;

torch::Tensor Trainer::loss_of(const models::Batch& batch) {
  const Autocast autocast(options_.autocast_bf16);
  return models::cross_entropy(model_->forward(batch.input), batch.target);
}

float Trainer::step(Session* session) {
  const models::Batch batch = loader_->batch_of_step(steps_done_);
  BorrowedGenerator generator(generator_state_);
  const auto begin = std::chrono::steady_clock::now();
  torch::Tensor loss;
  {
    const std::optional<Step> step = begin_step(session);
    optimizer_->zero_grad();
    loss = loss_of(batch);
    loss.backward();
    optimizer_->step();
  }
  const float value = loss.item<float>();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  last_step_seconds_ = seconds.count();
  generator.keep();
  ++steps_done_;
  return value;
}

double Trainer::evaluate(const data::Dataset& data, Session* session, std::int64_t limit,
                         const StopCheck& check) {
  const torch::NoGradGuard no_grad;
  const Evaluation mode(*model_);
  const std::int64_t count = std::min(data.count(), limit);
  std::int64_t right = 0;
  std::int64_t positions = 0;
  for (std::int64_t begin = 0; begin < count; begin += options_.batch) {
    if (check) check();
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::min(options_.batch, count - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const models::Batch batch = load_samples(data, model_->shape(), indices);
    torch::Tensor hits;
    {
      const std::optional<Step> step = begin_step(session);
      const Autocast autocast(options_.autocast_bf16);
      const torch::Tensor output = model_->forward(batch.input);
      hits = output.argmax(output.dim() == 3 ? 2 : 1).eq(batch.target).sum();
    }
    right += hits.item<std::int64_t>();
    positions += batch.target.numel();
  }
  return static_cast<double>(right) / static_cast<double>(positions);
}

std::int64_t Trainer::steps_per_epoch() const { return loader_->steps_per_epoch(); }

std::vector<NamedTensor> Trainer::tensors() const {
  std::vector<NamedTensor> found;
  for (const NamedTensor& item : named(model_->named_parameters())) {
    found.push_back({"parameter " + item.name, item.tensor});
    if (item.tensor.grad().defined())
      found.push_back({"gradient " + item.name, item.tensor.grad()});
  }
  for (const NamedTensor& item : named(model_->named_buffers()))
    found.push_back({"buffer " + item.name, item.tensor});
  for (NamedTensor& item : optimizer_->tensors()) found.push_back(std::move(item));
  found.push_back({"generator", generator_state_});
  return found;
}

std::vector<std::int64_t> Trainer::optimizer_counters() const { return optimizer_->counters(); }

void Trainer::restore(std::int64_t steps_done, const std::vector<NamedTensor>& tensors,
                      const std::vector<std::int64_t>& counters) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> saved;
  for (const NamedTensor& item : tensors) saved[item.name] = item.tensor;
  const auto take = [&](const std::string& name, const torch::Tensor& into) {
    const auto found = saved.find(name);
    if (found == saved.end()) throw InvalidArgument("the saved run has no " + name);
    if (found->second.sizes() != into.sizes() || found->second.dtype() != into.dtype())
      throw InvalidArgument("the saved run's " + name + " has another shape or type");
    into.copy_(found->second);
  };
  for (const NamedTensor& item : named(model_->named_parameters()))
    take("parameter " + item.name, item.tensor);
  for (const NamedTensor& item : named(model_->named_buffers()))
    take("buffer " + item.name, item.tensor);
  torch::Tensor state = torch::empty_like(generator_state_);
  take("generator", state);
  generator_state_ = state;
  optimizer_->restore(tensors, counters);
  steps_done_ = steps_done;
}

}  // namespace plimsoll::train
