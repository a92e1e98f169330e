// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/error.h"

#include "equality.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;

// Convolution, batch norm, in-place ReLU, dropout and a residual addition.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int channels)
      : conv1(register_module("conv1",
                              nn::Conv2d(nn::Conv2dOptions(channels, channels, 3).padding(1)))),
        norm1(register_module("norm1", nn::BatchNorm2d(channels))),
        conv2(register_module("conv2",
                              nn::Conv2d(nn::Conv2dOptions(channels, channels, 3).padding(1)))),
        norm2(register_module("norm2", nn::BatchNorm2d(channels))),
        dropout(register_module("dropout", nn::Dropout(0.25))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = norm1(conv1(x)).relu_();
    y = dropout(norm2(conv2(y)));
    return y.add_(x).relu_();
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d norm1;
  nn::Conv2d conv2;
  nn::BatchNorm2d norm2;
  nn::Dropout dropout;
};
TORCH_MODULE(Block);

struct NetImpl : nn::Module {
  NetImpl(int blocks, int channels)
      : stem(register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, channels, 3).padding(1)))),
        head(register_module("head", nn::Linear(channels, 10))) {
    for (int i = 0; i < blocks; ++i) {
      this->blocks.push_back(register_module("block" + std::to_string(i), Block(channels)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = stem(x);
    for (auto& block : blocks) x = block(x);
    return head(x.mean({2, 3}));
  }
  nn::Conv2d stem;
  nn::Linear head;
  std::vector<Block> blocks;
};
TORCH_MODULE(Net);

enum class Rule { kSgd, kAdam, kAdamW };

std::shared_ptr<torch::optim::Optimizer> make_optimizer(Rule rule, std::vector<torch::Tensor> p) {
  switch (rule) {
    case Rule::kSgd:
      return std::make_shared<torch::optim::SGD>(p, torch::optim::SGDOptions(0.05).momentum(0.9));
    case Rule::kAdam:
      return std::make_shared<torch::optim::Adam>(p, torch::optim::AdamOptions(1e-3));
    case Rule::kAdamW:
      return std::make_shared<torch::optim::AdamW>(p, torch::optim::AdamWOptions(1e-3));
  }
  return nullptr;
}

MakeProgram conv_net(Rule rule, int blocks = 6, int channels = 16, int batch = 8) {
  return [=] {
    Net net(blocks, channels);
    Program program;
    program.model = net.ptr();
    program.optimizer = make_optimizer(rule, net->parameters());
    auto images = torch::randn({batch, 3, 16, 16});
    auto labels = torch::randint(10, {batch});
    program.step = [net, images, labels, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto loss = nn::functional::cross_entropy(net(images), labels);
      loss.backward();
      optimizer->step();
      return loss;
    };
    return program;
  };
}

struct Case {
  const char* name;
  Rule rule;
  int percent;
};

class SessionEquality : public ::testing::TestWithParam<Case> {};

TEST_P(SessionEquality, EveryBitIsThatOfStock) {
  const auto make = conv_net(GetParam().rule);
  const Outcome stock = run(make, 4);
  const std::int64_t budget = stock.peak_bytes * GetParam().percent / 100;
  for (const Overlap overlap : {Overlap::kOff, Overlap::kOn}) {
    const SessionOptions options{.budget_bytes = budget, .overlap = overlap, .poison = true};
    const Outcome ours = run(make, 4, options);
    expect_identical(stock, ours);
    EXPECT_LE(ours.peak_bytes, budget);
    EXPECT_LE(ours.heap_bytes, kWrappedNumbersBytes);
    EXPECT_GT(ours.report.steps_on_sequence, 0);
    if (GetParam().percent < 60) {
      EXPECT_GT(ours.report.offloaded_bytes, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SessionEquality,
    ::testing::Values(Case{"Sgd150", Rule::kSgd, 150}, Case{"Sgd50", Rule::kSgd, 50},
                      Case{"Sgd25", Rule::kSgd, 25}, Case{"Adam50", Rule::kAdam, 50},
                      Case{"Adam25", Rule::kAdam, 25}, Case{"AdamW25", Rule::kAdamW, 25}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plimsoll
