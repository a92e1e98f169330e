// SPDX-License-Identifier: Apache-2.0
// Every call that a session makes of the device fails once, one run each. Whatever fails, all
// tensors stay readable, and the step, taken back and tried again, ends as if nothing had been.
#include <memory>
#include <string>

#include "plimsoll/base/error.h"
#include "plimsoll/device/fault_plan.h"
#include "plimsoll/session.h"

#include "device_fixture.h"
#include "training_runs.h"

namespace plimsoll::simgpu {
namespace {

using device::FaultKind;
using device::FaultPlan;

constexpr std::int64_t kBudget = 80'000;
constexpr int kSteps = 3;

class Trainee {
 public:
  Trainee() {
    torch::manual_seed(23);
    for (int i = 0; i < 3; ++i) {
      model_->push_back(torch::nn::Linear(48, 48));
      model_->push_back(torch::nn::Dropout(0.2));
      model_->push_back(torch::nn::Tanh());
    }
    model_->to(sim());
    x_ = torch::randn({64, 48}).to(sim());
    rule_ = std::make_unique<torch::optim::SGD>(model_->parameters(), 0.1);
  }
  void step() {
    rule_->zero_grad();
    model_->forward(x_).pow(2).mean().backward();
    rule_->step();
  }
  Outcome state() const {
    Outcome state;
    for (const auto& parameter : model_->named_parameters())
      state.emplace_back(parameter.key(), parameter.value().detach().cpu().clone());
    state.emplace_back("generator",
                       at::globalContext().defaultGenerator(sim()).get_state().clone());
    return state;
  }
  void take_back(const Outcome& state) {
    const torch::NoGradGuard no_grad;
    rule_->zero_grad();
    for (std::size_t i = 0; i + 1 < state.size(); ++i)
      model_->named_parameters()[state[i].first].copy_(state[i].second);
    auto generator = at::globalContext().defaultGenerator(sim());
    generator.set_state(state.back().second);
  }

 private:
  torch::nn::Sequential model_;
  torch::Tensor x_;
  std::unique_ptr<torch::optim::SGD> rule_;
};

class SessionFaults : public OnDevice,
                      public ::testing::WithParamInterface<std::tuple<FaultKind, Overlap>> {
 protected:
  // What a run leaves in which the n-th call of the kind fails; `struck` says whether one did.
  static Outcome train(std::int64_t nth, const std::vector<Outcome>& states, bool& struck) {
    const auto [kind, overlap] = GetParam();
    FaultPlan faults;
    Trainee trainee;
    {
      Session session({.budget_bytes = kBudget,
                       .device = sim(),
                       .overlap = overlap,
                       .testing_faults = &faults});
      faults.fail(kind, nth);
      for (std::size_t i = 0; i < kSteps; ++i) {
        for (bool is_done = false; !is_done;) {
          try {
            const Step step = session.step();
            trainee.step();
            is_done = true;
          } catch (const std::exception& error) {
            EXPECT_TRUE(dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                        dynamic_cast<const DeviceError*>(&error) != nullptr)
                << error.what();
            expect_nothing_lost(trainee.state(), states[i], states[i + 1]);
            trainee.take_back(states[i]);
          }
        }
      }
      EXPECT_LE(session.report().peak_bytes, kBudget);
    }
    struck = faults.fired() > 0;
    return trainee.state();
  }

  // A parameter is what it was before the step, or what the step makes of it.
  static void expect_nothing_lost(const Outcome& found, const Outcome& before,
                                  const Outcome& after) {
    for (std::size_t i = 0; i + 1 < found.size(); ++i) {
      EXPECT_TRUE(same_bits(found[i].second, before[i].second) ||
                  same_bits(found[i].second, after[i].second))
          << found[i].first;
    }
  }
};

TEST_P(SessionFaults, LoseNothing) {
  Trainee stock;
  std::vector<Outcome> states{stock.state()};
  for (int i = 0; i < kSteps; ++i) {
    stock.step();
    states.push_back(stock.state());
  }
  std::int64_t walked = 0;
  for (bool struck = true; struck; ++walked) {
    SCOPED_TRACE("call " + std::to_string(walked + 1));
    EXPECT_EQ(first_difference(states.back(), train(walked + 1, states, struck)), "");
  }
  EXPECT_GT(walked, 1);
}

INSTANTIATE_TEST_SUITE_P(Walk, SessionFaults,
                         ::testing::Combine(::testing::Values(FaultKind::kCopyOut,
                                                              FaultKind::kCopyIn, FaultKind::kSlide,
                                                              FaultKind::kRecord, FaultKind::kWait,
                                                              FaultKind::kAllocateHost),
                                            ::testing::Values(Overlap::kOn, Overlap::kOff)),
                         [](const auto& info) {
                           return std::string(device::fault_kind_name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == Overlap::kOn ? "_ahead"
                                                                           : "_when_needed");
                         });

TEST_F(OnDevice, ASessionThatCannotReserveItsArenaLeavesNothing) {
  FaultPlan faults;
  faults.fail(FaultKind::kReserve, 1);
  const SessionOptions options{.budget_bytes = kBudget, .device = sim(), .testing_faults = &faults};
  EXPECT_THROW(Session{options}, DeviceError);
  Session session(options);
  const Step step = session.step();
  EXPECT_EQ(torch::ones({4}, on_sim()).sum().item<float>(), 4.0F);
}

}  // namespace
}  // namespace plimsoll::simgpu
