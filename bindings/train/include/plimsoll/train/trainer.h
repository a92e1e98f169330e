// SPDX-License-Identifier: Apache-2.0
// One training run: model, optimizer, data position and generator state of its own, so that several
// runs can take turns in one process without touching one another's bits.
//
// Nouns: TrainOptions, Trainer, NamedTensor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/data/dataset.h"
#include "plimsoll/models/model.h"
#include "plimsoll/session.h"

namespace plimsoll::train {

enum class OptimizerKind : std::uint8_t { kSgd, kAdam, kAdamW };

struct TrainOptions {
  std::string model;  // as models::parse_model reads it
  std::int64_t batch = 32;
  OptimizerKind optimizer = OptimizerKind::kSgd;  // SGD with momentum 0.9
  double learning_rate = 0;                       // 0: 0.05 for SGD, 0.001 for the others
  double weight_decay = 1e-4;
  bool autocast_bf16 = false;
  // Seeds the weights (unless the model's text says a seed), dropout and the order of the data.
  std::uint64_t seed = 1;
};

double learning_rate_of(const TrainOptions& options);

// Called between steps; may throw to stop.
using StopCheck = std::function<void()>;

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// The optimizer behind a narrow door; see src/optimizer.h.
class Optimizer;
// Batches in the epoch's order; see src/loader.h.
class Loader;

// Threads: single owner; LibTorch's thread settings are the caller's.
// Determinism: options and data alone decide every bit; the default generator is the run's own
// during a step and the process's again after it.
class Trainer {
 public:
  // Errors: InvalidArgument for a model that is none, a batch below 1, or data with more classes
  // than the model tells apart.
  Trainer(const TrainOptions& options, std::shared_ptr<const data::Dataset> data);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains on the next batch, under the session where there is one, and returns the loss.
  // Errors: what LibTorch throws, c10::OutOfMemoryError included. After an error the run's position
  // and generator are as before the step; its parameters are unchanged unless the optimizer had
  // begun.
  float step(Session* session = nullptr);
  // The seconds of the last step: from the loaded batch to the loss on the host.
  double last_step_seconds() const noexcept { return last_step_seconds_; }

  // The share of `data` whose class the model names (kPixel and kToken: of all positions), in
  // evaluation mode, at the training batch size. `limit` samples at most.
  double evaluate(const data::Dataset& data, Session* session, std::int64_t limit,
                  const StopCheck& check = {});

  std::int64_t steps_done() const noexcept { return steps_done_; }
  std::int64_t steps_per_epoch() const;
  const TrainOptions& options() const noexcept { return options_; }
  models::Model& model() noexcept { return *model_; }
  const std::string& canonical_model() const noexcept { return canonical_model_; }

  // "parameter x", "gradient x", "buffer x", "optimizer x momentum", ..., "generator", in a fixed
  // order; undefined gradients and state are left out. The tensors are the run's own, not copies.
  std::vector<NamedTensor> tensors() const;
  // Counters that are no tensors: Adam's step of each parameter.
  std::vector<std::int64_t> optimizer_counters() const;

  // Puts the run where a saved one was; `tensors` named as tensors() names them, gradients not
  // needed. Errors: InvalidArgument where a name or a shape does not fit; the run is unusable then.
  void restore(std::int64_t steps_done, const std::vector<NamedTensor>& tensors,
               const std::vector<std::int64_t>& counters);

 private:
  torch::Tensor loss_of(const models::Batch& batch);

  TrainOptions options_;
  std::string canonical_model_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Loader> loader_;
  torch::Tensor generator_state_;
  std::int64_t steps_done_ = 0;
  double last_step_seconds_ = 0;
};

}  // namespace plimsoll::train
