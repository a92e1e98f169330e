// SPDX-License-Identifier: Apache-2.0
// Level 0's fast path: LibTorch programs on planned allocations, the same bits as without.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/bytes.h"

namespace plimsoll {
namespace {

class PlannedAllocation : public ::testing::Test {
 protected:
  void SetUp() override {
    install_allocator({.attribute = false, .plan = true});
    before_ = planned_allocations();
  }
  void TearDown() override { install_allocator(); }
  std::int64_t planned() const { return planned_allocations().planned - before_.planned; }
  std::int64_t missed() const { return planned_allocations().missed - before_.missed; }
  PlannedAllocations before_;
};

torch::nn::Sequential conv_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)), torch::nn::BatchNorm2d(8),
      torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)),
      torch::nn::Tanh(), torch::nn::Flatten(), torch::nn::Linear(8 * 8 * 8, 10));
}

// Trains and evaluates in turn; returns all losses and outputs. Calls mark() after every step.
template <typename Mark>
std::vector<torch::Tensor> train_and_evaluate(int steps, Mark mark) {
  auto net = conv_net();
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  std::vector<torch::Tensor> results;
  mark();
  for (int step = 0; step < steps; ++step) {
    const std::int64_t batch = step % 10 == 9 ? 3 : 8;  // now and then a last batch
    net->train();
    auto image = torch::randn({batch, 3, 8, 8});
    auto target = torch::randint(0, 10, {batch});
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net->forward(image), target);
    loss.backward();
    optimizer.step();
    results.push_back(loss.detach().clone());
    mark();
    if (step % 5 == 4) {
      net->eval();
      torch::NoGradGuard no_grad;
      results.push_back(net->forward(image).clone());
      mark();
    }
  }
  for (const auto& parameter : net->parameters()) results.push_back(parameter.detach().clone());
  for (const auto& buffer : net->buffers()) results.push_back(buffer.clone());
  return results;
}

void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST_F(PlannedAllocation, TrainingWithEvaluationAndLastBatchesIsBitIdentical) {
  // The planner has a thread of its own, which may have to wait for a core: the plan's steps begin
  // some time after the first ones.
  std::int64_t last_missed = -1;
  bool is_answered = false;  // a whole step, from the plan alone
  const auto mark = [&] {
    mark_step();
    is_answered = is_answered || missed() == last_missed;
    last_missed = missed();
    if (!is_answered) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  const auto planned_results = train_and_evaluate(40, mark);
  EXPECT_GT(planned(), 0);
  EXPECT_TRUE(is_answered);
  install_allocator();  // the same process without plans
  const auto stock_results = train_and_evaluate(40, [] {});
  expect_equal(planned_results, stock_results);
}

TEST_F(PlannedAllocation, InferenceIsAnsweredFromThePlanAlone) {
  torch::NoGradGuard no_grad;
  auto net = conv_net();
  net->eval();
  const auto image = torch::ones({1, 3, 8, 8});
  const auto expected = net->forward(image).clone();
  mark_step();
  // The planner has a thread of its own, which may have to wait for a core: wait for the plan.
  std::int64_t planned_before = -1;
  std::int64_t missed_before = -1;
  for (int i = 0; i < 5000 && (missed() != missed_before || planned() == planned_before); ++i) {
    missed_before = missed();
    planned_before = planned();
    EXPECT_TRUE(torch::equal(net->forward(image), expected));
    mark_step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(torch::equal(net->forward(image), expected));
    mark_step();
  }
  EXPECT_EQ(missed(), missed_before);
  EXPECT_GT(planned(), planned_before);
}

TEST_F(PlannedAllocation, OutputsThatAreKeptKeepTheirBytes) {
  torch::NoGradGuard no_grad;
  auto net = conv_net();
  net->eval();
  std::vector<torch::Tensor> kept;
  std::vector<torch::Tensor> copies;
  mark_step();
  for (int i = 0; i < 40; ++i) {
    auto output = net->forward(torch::full({1, 3, 8, 8}, 0.1 * i));
    if (i % 3 == 0) {
      kept.push_back(output);
      copies.push_back(torch::from_blob(output.data_ptr(), output.sizes()).clone());
    }
    mark_step();
  }
  expect_equal(kept, copies);
}

TEST_F(PlannedAllocation, EightThreadsServeRequestsSideBySide) {
  auto net = conv_net();
  net->eval();
  const auto image = torch::ones({1, 3, 8, 8});
  torch::Tensor expected;
  {
    torch::NoGradGuard no_grad;
    expected = net->forward(image).clone();
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      torch::NoGradGuard no_grad;
      mark_step();
      for (int i = 0; i < 40; ++i) {
        if (!torch::equal(net->forward(image), expected)) ++wrong;
        mark_step();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(planned(), 0);
}

TEST_F(PlannedAllocation, TensorsFreedByAnotherThreadAreFine) {
  torch::NoGradGuard no_grad;
  auto net = conv_net();
  net->eval();
  const auto image = torch::ones({1, 3, 8, 8});
  const auto expected = net->forward(image).clone();
  mark_step();
  for (int i = 0; i < 40; ++i) {
    torch::Tensor output = net->forward(image);
    std::thread([output = std::move(output), &expected]() mutable {
      EXPECT_TRUE(torch::equal(output, expected));
      output.reset();
    }).join();
    mark_step();
  }
}

TEST_F(PlannedAllocation, TheArenaCountsAgainstTheLimit) {
  torch::NoGradGuard no_grad;
  const auto live = allocator_statistics().live_bytes;
  install_allocator({.limit_bytes = live + mib(4), .attribute = false, .plan = true});
  std::thread([] {
    torch::NoGradGuard guard;
    mark_step();
    for (int i = 0; i < 30; ++i) {
      auto a = torch::empty({mib(3)}, torch::kByte);
      a.reset();
      auto b = torch::empty({mib(2)}, torch::kByte);
      mark_step();
    }
  }).join();
  EXPECT_LE(allocator_statistics().peak_bytes, live + mib(4));
  EXPECT_THROW(torch::empty({mib(5)}, torch::kByte), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace plimsoll
