// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/train/trainer.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "plimsoll/base/error.h"
#include "plimsoll/train/comparison.h"
#include "plimsoll/train/measure.h"

namespace plimsoll::train {
namespace {

using ::testing::HasSubstr;

TrainOptions small_options(const std::string& model = "mlp:layers=2,dim=32,image=8") {
  TrainOptions options;
  options.model = model;
  options.batch = 8;
  return options;
}

Data samples() { return data::make_synthetic(100, 10, {}); }

TEST(Trainer, TheSameOptionsGiveTheSameBitsInTurns) {
  Trainer one(small_options(), samples());
  Trainer two(small_options(), samples());
  for (int step = 0; step < 3; ++step) {
    const float loss = one.step();
    torch::manual_seed(static_cast<std::uint64_t>(step));  // the process's generator is not theirs
    EXPECT_TRUE(is_same_loss(loss, two.step()));
    EXPECT_EQ(first_difference(one, two), "");
  }
}

TEST(Trainer, LeavesTheProcessesGeneratorAlone) {
  Trainer trainer(small_options(), samples());
  torch::manual_seed(9);
  const torch::Tensor expected = torch::rand({3});
  torch::manual_seed(9);
  trainer.step();
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
}

TEST(Trainer, AnotherSeedGivesAnotherRun) {
  TrainOptions other = small_options();
  other.seed = 2;
  Trainer one(small_options(), samples());
  Trainer two(other, samples());
  EXPECT_NE(one.step(), two.step());
}

TEST(Trainer, TheLastBatchOfAnEpochIsSmallerAndTheNextEpochFollows) {
  Trainer trainer(small_options(), samples());
  EXPECT_EQ(trainer.steps_per_epoch(), 13);
  for (int step = 0; step < 15; ++step) trainer.step();
  EXPECT_EQ(trainer.steps_done(), 15);
}

TEST(Trainer, EveryOptimizerLowersTheLoss) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    TrainOptions options = small_options("mlp:layers=1,dim=64,image=8,dropout=0");
    options.optimizer = kind;
    options.batch = 100;
    Trainer trainer(options, samples());
    const float first = trainer.step();
    float last = first;
    for (int step = 0; step < 30; ++step) last = trainer.step();
    EXPECT_LT(last, first * 0.8F);
  }
}

TEST(Trainer, EvaluationDrawsNothingAndLeavesTrainingMode) {
  Trainer trainer(small_options(), samples());
  Trainer other(small_options(), samples());
  const double accuracy = trainer.evaluate(*samples(), nullptr, 100);
  EXPECT_GE(accuracy, 0);
  EXPECT_LE(accuracy, 1);
  trainer.step();
  other.step();
  EXPECT_EQ(first_difference(trainer, other), "");
}

TEST(Trainer, AnEvaluationThatIsStoppedLeavesTrainingMode) {
  Trainer trainer(small_options(), samples());
  Trainer other(small_options(), samples());
  int calls = 0;
  const auto stop = [&] {
    if (++calls == 2) throw Interrupted();
  };
  EXPECT_THROW(trainer.evaluate(*samples(), nullptr, 100, stop), Interrupted);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(trainer.model().is_training());
  trainer.step();
  other.step();
  EXPECT_EQ(first_difference(trainer, other), "");
}

TEST(Trainer, AnEvaluationThatLacksRoomInTheBudgetSaysSo) {
  Trainer trainer(small_options(), samples());
  SessionOptions options;
  options.budget_bytes = 1024;
  Session session(options);
  try {
    evaluate_inside(trainer, session, *samples());
    FAIL() << "1 KiB held a matrix of 8 KiB";
  } catch (const DeviceOutOfMemory& error) {
    EXPECT_EQ(error.figures().limit_bytes, 1024);
    EXPECT_GT(error.figures().requested_bytes, 1024);
  }
}

TEST(Trainer, DataWithTooManyClassesIsRefused) {
  EXPECT_THROW(Trainer(small_options("mlp:classes=5,image=8"), samples()), InvalidArgument);
  TrainOptions options = small_options();
  options.batch = 0;
  EXPECT_THROW(Trainer(options, samples()), InvalidArgument);
}

TEST(Comparison, SeesASingleBitAndNamesTheTensor) {
  Trainer one(small_options(), samples());
  Trainer two(small_options(), samples());
  one.step();
  two.step();
  {
    const torch::NoGradGuard no_grad;
    torch::Tensor weight = two.model().parameters()[0];
    weight.data_ptr<float>()[5] = std::nextafter(weight.data_ptr<float>()[5], 100.0F);
  }
  EXPECT_THAT(first_difference(one, two),
              testing::AllOf(HasSubstr("parameter body.1"), HasSubstr("element 5")));
}

TEST(Comparison, TakesTheSameNanAsEqualAndZerosOfTwoSignsAsDifferent) {
  const auto one = [](float value) {
    return std::vector<NamedTensor>{{"x", torch::full({2}, value)}};
  };
  EXPECT_EQ(first_difference(one(NAN), one(NAN)), "");
  EXPECT_NE(first_difference(one(0.0F), one(-0.0F)), "");
  EXPECT_NE(first_difference(one(0.0F), {}), "");
  EXPECT_NE(first_difference(one(0.0F), {{"y", torch::zeros({2})}}), "");
  EXPECT_NE(first_difference(one(0.0F), {{"x", torch::zeros({3})}}), "");
  EXPECT_EQ(first_difference({{"x", torch::empty({0})}}, {{"x", torch::empty({0})}}), "");
}

TEST(Measure, StocksPeakIsRepeatableAndAboveWhatPersists) {
  const StockMeasure one = measure_stock(small_options(), samples());
  const StockMeasure two = measure_stock(small_options(), samples());
  EXPECT_EQ(one.peak_bytes, two.peak_bytes);
  EXPECT_EQ(one.persistent_bytes, two.persistent_bytes);
  EXPECT_GT(one.peak_bytes, one.persistent_bytes);
  // Parameters, gradients and momentum are there at least.
  Trainer trainer(small_options(), samples());
  EXPECT_GE(one.persistent_bytes, 3 * 4 * models::parameter_count(trainer.model()));
}

TEST(Measure, TheLeastBudgetWorksAndIsNoLessThanTheLargestOperator) {
  const TrainOptions options = small_options();
  const StockMeasure stock = measure_stock(options, samples());
  const MinimumBudget minimum = find_minimum_budget(options, samples(), {}, stock.peak_bytes);
  EXPECT_GE(minimum.budget_bytes, minimum.lower_bound_bytes);
  EXPECT_LT(minimum.budget_bytes, stock.peak_bytes);
  EXPECT_NE(minimum.pinned_by, "");
  Trainer trainer(options, samples());
  Session session({.budget_bytes = minimum.budget_bytes});
  for (int step = 0; step < 4; ++step) step_inside(trainer, session);
  EXPECT_LE(session.report().peak_bytes, minimum.budget_bytes);
}

TEST(Measure, ABudgetBelowTheLargestOperatorIsDeviceOutOfMemory) {
  const TrainOptions options = small_options();
  Trainer trainer(options, samples());
  Session session({.budget_bytes = 1024});
  EXPECT_THROW(step_inside(trainer, session), DeviceOutOfMemory);
}

}  // namespace
}  // namespace plimsoll::train
