// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "plimsoll/train/measure.h"

namespace plimsoll::train {
namespace {

TEST(Learning, ASmallResnetPasses85PercentOnFashionMnistAfterOneEpochUnderABudget) {
  ASSERT_TRUE(std::filesystem::exists(data::fashion_mnist_folder()))
      << "the package dataset-fashion-mnist is missing; ./dev setup installs it";
  at::set_num_threads(2);
  TrainOptions options;
  options.model = "resnet:stages=1-1-1,channels=16,image=28,image-channels=1";
  options.batch = 64;
  options.optimizer = OptimizerKind::kAdamW;
  options.learning_rate = 0.003;
  const Data data = data::open_dataset("fashion-mnist", data::Split::kTrain, 10);
  const StockMeasure stock = measure_stock(options, data);
  Trainer trainer(options, data);
  // The largest convolution's backward takes two thirds of stock's peak at this batch.
  const std::int64_t budget_bytes = stock.peak_bytes * 3 / 4;
  Session session({.budget_bytes = budget_bytes});
  for (std::int64_t step = 0; step < trainer.steps_per_epoch(); ++step)
    step_inside(trainer, session);
  const auto test = data::open_dataset("fashion-mnist", data::Split::kTest, 10);
  EXPECT_GT(trainer.evaluate(*test, &session, test->count()), 0.85);
  EXPECT_LE(session.report().peak_bytes, budget_bytes);
}

}  // namespace
}  // namespace plimsoll::train
