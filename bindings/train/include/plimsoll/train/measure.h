// SPDX-License-Identifier: Apache-2.0
// What stock LibTorch needs for a run, and the least that a session needs.
//
// Nouns: StockMeasure, MinimumBudget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plimsoll/train/trainer.h"

namespace plimsoll::train {

using Data = std::shared_ptr<const data::Dataset>;

struct StockMeasure {
  std::int64_t peak_bytes = 0;
  // The operator whose allocation made the peak, "" outside of operators, and that allocation.
  std::string peak_op;
  std::int64_t peak_op_bytes = 0;
  // Parameters, buffers, gradients that stay, optimizer state.
  std::int64_t persistent_bytes = 0;
};

// Runs three steps of a copy without a session and counts every byte that
// LibTorch's CPU allocator gives (installs it, see plimsoll/allocator.h) from the second on: the
// first holds what libraries allocate once a process. What lived before does not count.
StockMeasure measure_stock(const TrainOptions& options, const Data& data,
                           const StopCheck& check = {});

struct MinimumBudget {
  std::int64_t budget_bytes = 0;
  // The largest operator's distinct bytes, a bound no budget can go below.
  std::int64_t lower_bound_bytes = 0;
  std::string pinned_by;
};

// Searches the smallest budget at which three steps of a copy work: from the lower bound that a
// generous session reports upwards in growing strides, then by halves until a budget that works
// lies within 1 % of one that does not. Cost: about six short runs. `session` gives the other
// options. Errors: HostOutOfMemory.
MinimumBudget find_minimum_budget(const TrainOptions& options, const Data& data,
                                  const SessionOptions& session, std::int64_t stock_peak_bytes,
                                  const StopCheck& check = {});

// Runs a step and turns c10::OutOfMemoryError into DeviceOutOfMemory (with what the session says it
// lacks) or, where the budget was not the cause, HostOutOfMemory.
float step_inside(Trainer& trainer, Session& session);

// The accuracy on all of `data`. Errors: as step_inside, and what `check` throws.
double evaluate_inside(Trainer& trainer, Session& session, const data::Dataset& data,
                       const StopCheck& check = {});

}  // namespace plimsoll::train
