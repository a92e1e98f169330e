// SPDX-License-Identifier: Apache-2.0
// Every device and file call of a training run fails once, one run each. Whatever fails, all
// tensors stay readable, and the step, taken back and tried again, ends as if nothing had been.
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/error.h"
#include "plimsoll/device/fault_plan.h"

#include "equality.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;
using device::FaultKind;
using device::FaultPlan;

// A model, what its step changes, and how to take a step back.
struct Trainee {
  Trainee() {
    torch::manual_seed(23);
    for (int i = 0; i < 4; ++i) {
      model->push_back(nn::Linear(48, 48));
      model->push_back(nn::Dropout(0.2));
      model->push_back(nn::Tanh());
    }
    x = torch::randn({64, 48});
    rule = std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1));
  }
  float step() {
    rule->zero_grad();
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    rule->step();
    return loss.item<float>();
  }
  Named snapshot() const {
    Named state;
    for (const auto& parameter : model->named_parameters()) {
      keep(state, parameter.key(), parameter.value());
    }
    keep(state, "generator", at::detail::getDefaultCPUGenerator().get_state());
    return state;
  }
  void take_back(const Named& state) {
    torch::NoGradGuard no_grad;
    rule->zero_grad();
    for (std::size_t i = 0; i + 1 < state.size(); ++i) {
      model->named_parameters()[state[i].first].copy_(state[i].second);
    }
    auto generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state.back().second);
  }
  nn::Sequential model;
  torch::Tensor x;
  std::unique_ptr<torch::optim::SGD> rule;
};

constexpr int kSteps = 3;

// A parameter is what it was before the step, or what the step makes of it.
void expect_nothing_lost(const Named& found, const Named& before, const Named& after) {
  for (std::size_t i = 0; i + 1 < found.size(); ++i) {  // the last is the generator
    EXPECT_TRUE(same_bits(found[i].second, before[i].second) ||
                same_bits(found[i].second, after[i].second))
        << found[i].first;
  }
}

class FaultWalk : public ::testing::TestWithParam<std::tuple<FaultKind, Overlap>> {
 protected:
  FaultWalk() { std::filesystem::create_directories(folder_); }
  ~FaultWalk() override { std::filesystem::remove_all(folder_); }

  // Trains with the n-th call of the kind failing. Returns the number of times it struck.
  // `states`: stock's parameters before the first step and after each.
  std::int64_t train(FaultKind kind, std::int64_t nth, Overlap overlap,
                     const std::vector<Named>& states, Outcome& outcome) {
    FaultPlan faults;
    Trainee trainee;
    {
      SessionOptions options;
      options.budget_bytes = kib(96);
      options.host_limit_bytes = kib(64);
      options.spill_folder = folder_.string();
      options.overlap = overlap;
      options.testing_faults = &faults;
      options.poison = true;
      Session session(options);
      faults.fail(kind, nth);
      for (int i = 0; i < kSteps; ++i) {
        const Named before = trainee.snapshot();
        float loss = 0;
        for (bool done = false; !done;) {
          try {
            const auto step = session.step();
            loss = trainee.step();
            done = true;
          } catch (const std::exception& error) {
            EXPECT_TRUE(dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                        dynamic_cast<const DeviceError*>(&error) != nullptr)
                << error.what();
            expect_nothing_lost(trainee.snapshot(), states[static_cast<std::size_t>(i)],
                                states[static_cast<std::size_t>(i) + 1]);
            trainee.take_back(before);
          }
        }
        outcome.tensors.emplace_back("loss", torch::full({1}, loss));
      }
      EXPECT_LE(session.report().peak_bytes, kib(96));
    }
    for (const auto& entry : trainee.snapshot()) outcome.tensors.push_back(entry);
    return faults.fired();
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("plimsoll_fault_walk_" + std::to_string(::getpid()) + "_" +
       std::to_string(static_cast<int>(std::get<0>(GetParam()))) + "_" +
       std::to_string(static_cast<int>(std::get<1>(GetParam()))));
};

TEST_P(FaultWalk, LosesNothingWhicheverCallFails) {
  install_allocator();  // stock runs first
  Trainee stock;
  Outcome expected;
  std::vector<Named> states{stock.snapshot()};
  for (int i = 0; i < kSteps; ++i) {
    expected.tensors.emplace_back("loss", torch::full({1}, stock.step()));
    states.push_back(stock.snapshot());
  }
  for (const auto& entry : stock.snapshot()) expected.tensors.push_back(entry);

  const auto [kind, overlap] = GetParam();
  std::int64_t walked = 0;
  for (std::int64_t nth = 1;; ++nth, ++walked) {
    SCOPED_TRACE("call " + std::to_string(nth) + " of " + device::fault_kind_name(kind));
    Outcome outcome;
    const std::int64_t struck = train(kind, nth, overlap, states, outcome);
    expect_identical(expected, outcome);
    if (HasFatalFailure() || struck == 0) break;
  }
  RecordProperty("calls", static_cast<int>(walked));
  // Calls that this run does not make at all would make the walk an empty one.
  EXPECT_GT(walked, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Now, FaultWalk,
    ::testing::Combine(::testing::Values(FaultKind::kCopyOut, FaultKind::kCopyIn, FaultKind::kSlide,
                                         FaultKind::kAllocateHost, FaultKind::kFileGrow,
                                         FaultKind::kFileWrite, FaultKind::kFileRead),
                       ::testing::Values(Overlap::kOff)),
    [](const auto& info) { return std::string(device::fault_kind_name(std::get<0>(info.param))); });

INSTANTIATE_TEST_SUITE_P(
    Ahead, FaultWalk,
    ::testing::Combine(::testing::Values(FaultKind::kCopyOut, FaultKind::kCopyIn,
                                         FaultKind::kLateCopyOut, FaultKind::kLateCopyIn,
                                         FaultKind::kSlide, FaultKind::kWait,
                                         FaultKind::kAllocateHost, FaultKind::kFileGrow,
                                         FaultKind::kFileWrite, FaultKind::kFileRead),
                       ::testing::Values(Overlap::kOn)),
    [](const auto& info) { return std::string(device::fault_kind_name(std::get<0>(info.param))); });

}  // namespace
}  // namespace plimsoll
