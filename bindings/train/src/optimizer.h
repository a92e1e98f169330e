// SPDX-License-Identifier: Apache-2.0
// LibTorch's C++ optimizers behind one door that can name, give out and take back their state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/train/trainer.h"

namespace plimsoll::train {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void zero_grad() = 0;
  virtual void step() = 0;
  // "optimizer NAME momentum" and so on, in the order of the parameters.
  virtual std::vector<NamedTensor> tensors() const = 0;
  virtual std::vector<std::int64_t> counters() const = 0;
  // Sets the state of the parameters that `tensors` names; the counters stand in the order of
  // counters(). Errors: InvalidArgument where they do not fit.
  virtual void restore(const std::vector<NamedTensor>& tensors,
                       const std::vector<std::int64_t>& counters) = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options,
                                          const std::vector<NamedTensor>& parameters);

}  // namespace plimsoll::train
