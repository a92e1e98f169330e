// SPDX-License-Identifier: Apache-2.0
// Training programs under pressure: a tower of linear layers whose step is the test's, and the
// check that a program under a budget leaves the bits that stock leaves.
#pragma once

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/bytes.h"

#include "equality.h"

namespace plimsoll {

using Optimizer = std::shared_ptr<torch::optim::Optimizer>;

inline Optimizer sgd(const torch::nn::Module& model) {
  return std::make_shared<torch::optim::SGD>(model.parameters(),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

// A stack of linear layers wide enough that a fraction of the peak evicts in every step.
inline torch::nn::Sequential tower(int layers, int width) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::Tanh());
  }
  return model;
}

// A program over tower(8, 96) whose step is the test's.
template <typename StepOf>
MakeProgram tower_program(StepOf step_of, int layers = 8, int width = 96, int batch = 128) {
  return [=] {
    auto model = tower(layers, width);
    Program program;
    program.model = model.ptr();
    program.optimizer = sgd(*model);
    auto x = torch::randn({batch, width});
    program.step = step_of(model, program.optimizer, x);
    return program;
  };
}

struct Pressure {
  // The budget, of stock's peak; more where the largest operator needs more, which the session
  // says itself and is not to be believed beyond `at_most_percent`.
  int percent = 45;
  int at_most_percent = 70;
  std::int64_t heap_bytes = kWrappedNumbersBytes;
};

inline void expect_same(const MakeProgram& make, int steps = 4, const Pressure& pressure = {}) {
  const Outcome stock = run(make, steps);
  SessionOptions options;
  options.poison = true;
  // The least budget is 1.15 x the largest operator's distinct bytes at most.
  options.budget_bytes = 2 * stock.peak_bytes;
  const Outcome ample = run(make, steps, options);
  expect_identical(stock, ample);
  EXPECT_EQ(ample.report.offloaded_bytes, 0);
  options.budget_bytes = std::max(stock.peak_bytes * pressure.percent / 100,
                                  ample.report.lower_bound_bytes * 115 / 100);
  EXPECT_LE(options.budget_bytes, stock.peak_bytes * pressure.at_most_percent / 100);
  for (const Overlap overlap : {Overlap::kOff, Overlap::kOn}) {
    SCOPED_TRACE(overlap == Overlap::kOn ? "copies ahead" : "copies when needed");
    options.overlap = overlap;
    const Outcome ours = run(make, steps, options);
    expect_identical(stock, ours);
    EXPECT_LE(ours.peak_bytes, options.budget_bytes);
    EXPECT_LE(ours.heap_bytes, pressure.heap_bytes);
    EXPECT_GT(ours.report.offloaded_bytes + ours.report.prefetched_bytes, 0)
        << "no pressure, no test";
  }
}

}  // namespace plimsoll
