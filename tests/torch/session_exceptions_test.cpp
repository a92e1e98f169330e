// SPDX-License-Identifier: Apache-2.0
// Exceptions of the program's own in the middle of training, which then goes on: as stock does with
// the same exceptions.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "equality.h"
#include "tower_program.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;

constexpr int kSteps = 6;
// The second step that goes wrong follows a known sequence until then.
constexpr bool goes_wrong(int step) { return step == 1 || step == 4; }

// Whether the program catches it inside of the step, or lets it end the step.
enum class Catches { kInside, kOutside };

class SessionExceptions : public ::testing::TestWithParam<Catches> {
 protected:
  // `body` is called in every step, between zero_grad and the optimizer.
  template <typename Body>
  static void expect_stock_goes_on(Body body) {
    int thrown = 0;
    const auto catches = GetParam();
    expect_same(
        tower_program([=, &thrown](nn::Sequential model, Optimizer optimizer, torch::Tensor x) {
          return [=, &thrown](int step) mutable {
            optimizer->zero_grad();
            try {
              return body(model, optimizer, x, step);
            } catch (const ProgramError&) {
              ++thrown;
              if (catches == Catches::kOutside) throw;
            }
            // With the gradients that there are.
            optimizer->step();
            return torch::ones({}) * step;
          };
        }),
        kSteps);
    EXPECT_EQ(thrown, 4 * 2);  // in four runs
  }
};

// A step in which `change` sees what the eighth layer gives.
template <typename Change>
auto step_with(const Change& change) {
  return [change](nn::Sequential& model, Optimizer& optimizer, const torch::Tensor& x, int step) {
    auto y = x;
    int layer = 0;
    for (auto& module : *model) {
      y = module.forward(y);
      if (++layer == 8) y = change(y, step);
    }
    auto loss = y.pow(2).mean();
    loss.backward();
    optimizer->step();
    return loss;
  };
}

TEST_P(SessionExceptions, InAGradientHookHalfWayThroughBackward) {
  expect_stock_goes_on(step_with([](torch::Tensor y, int step) {
    y.register_hook([step](const torch::Tensor& gradient) {
      if (goes_wrong(step)) throw ProgramError();
      return gradient;
    });
    return y;
  }));
}

struct Failing : torch::autograd::Function<Failing> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               bool fails) {
    auto y = torch::sigmoid(x);
    context->save_for_backward({y});
    context->saved_data["fails"] = fails;
    return y * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto dx = gradients[0] * context->get_saved_variables()[0];
    if (context->saved_data["fails"].toBool()) throw ProgramError();
    return {dx, torch::Tensor()};
  }
};

TEST_P(SessionExceptions, InTheBackwardOfACustomFunction) {
  expect_stock_goes_on(step_with(
      [](const torch::Tensor& y, int step) { return Failing::apply(y, goes_wrong(step)); }));
}

TEST_P(SessionExceptions, InTheLoopOverTheParameters) {
  expect_stock_goes_on([](nn::Sequential& model, Optimizer&, const torch::Tensor& x, int step) {
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    torch::NoGradGuard no_grad;
    int updated = 0;
    for (auto& parameter : model->parameters()) {
      parameter.sub_(parameter.grad() * 0.1);
      if (++updated == 5 && goes_wrong(step)) throw ProgramError();
    }
    return loss;
  });
}

INSTANTIATE_TEST_SUITE_P(Caught, SessionExceptions,
                         ::testing::Values(Catches::kInside, Catches::kOutside),
                         [](const auto& info) {
                           return info.param == Catches::kInside ? "InsideTheStep"
                                                                 : "OutsideTheStep";
                         });

}  // namespace
}  // namespace plimsoll
