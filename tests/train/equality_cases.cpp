// SPDX-License-Identifier: Apache-2.0
#include "equality_cases.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/train/comparison.h"

namespace plimsoll::train {
namespace {

constexpr int kSteps = 5;

float step_unseen(Trainer& stock, Session& session) {
  const Pause pause = session.pause();
  return stock.step();
}

// Says whether the budget did for five steps; differences are test failures.
bool is_equal_at(const Needs& needs, std::int64_t budget_bytes) {
  SCOPED_TRACE(needs.options.model + " at " + std::to_string(budget_bytes) + " bytes, stock " +
               std::to_string(needs.stock.peak_bytes));
  Trainer stock(needs.options, needs.data);
  Trainer ours(needs.options, needs.data);
  Session session({.budget_bytes = budget_bytes});
  for (int step = 0; step < kSteps; ++step) {
    const float expected = step_unseen(stock, session);
    float loss = 0;
    try {
      loss = step_inside(ours, session);
    } catch (const DeviceOutOfMemory&) {
      return false;
    }
    EXPECT_TRUE(is_same_loss(expected, loss)) << "step " << step << ": " << loss;
    EXPECT_EQ(first_difference(stock, ours), "") << "after step " << step;
    if (::testing::Test::HasFailure()) return true;
  }
  EXPECT_LE(session.report().peak_bytes, budget_bytes);
  return true;
}

// Comparing between steps brings tensors back to other places than the search met, so the least
// budget may need a little more here.
void expect_equal_near(const Needs& needs, std::int64_t budget_bytes) {
  std::int64_t budget = budget_bytes;
  while (!is_equal_at(needs, budget)) {
    budget += budget / 20;
    ASSERT_LE(budget, budget_bytes + budget_bytes / 10)
        << needs.options.model << " has no room a tenth above " << budget_bytes;
  }
}

}  // namespace

std::vector<std::string> every_model() {
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::model_list()) names.push_back(info.name);
  return names;
}

std::vector<std::string> short_models() {
  std::vector<std::string> names;
  for (const std::string& name : every_model())
    if (name != "resnet101" && name != "resnet152") names.push_back(name);
  return names;
}

std::vector<std::string> autocast_models() {
  return {"resnet18", "densenet121", "mobilenet-v2", "unet", "vit", "gpt"};
}

Needs measure_needs(const std::string& model, OptimizerKind optimizer, bool autocast) {
  at::set_num_threads(2);
  Needs needs;
  for (const models::ModelInfo& info : models::model_list())
    if (info.name == model) needs.options.model = info.small;
  needs.options.batch = 4;
  needs.options.optimizer = optimizer;
  needs.options.autocast_bf16 = autocast;
  needs.data = data::make_synthetic(64, 10, {});
  needs.stock = measure_stock(needs.options, needs.data);
  needs.minimum = find_minimum_budget(needs.options, needs.data, {}, needs.stock.peak_bytes);
  return needs;
}

void expect_equal_at_every_budget(const Needs& needs) {
  const std::int64_t least = needs.minimum.budget_bytes;
  EXPECT_LE(least * 100, needs.minimum.lower_bound_bytes * 115)
      << needs.options.model << ", pinned by " << needs.minimum.pinned_by;
  for (const std::int64_t percent : {50, 25, 0}) {
    expect_equal_near(needs, std::max(least, needs.stock.peak_bytes * percent / 100));
    if (::testing::Test::HasFailure()) return;
  }
}

std::string as_test_name(std::string model) {
  std::replace(model.begin(), model.end(), '-', '_');
  return model;
}

}  // namespace plimsoll::train
