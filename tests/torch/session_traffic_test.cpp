// SPDX-License-Identifier: Apache-2.0
// That a session follows the plan it made: what moves is near the least that any schedule of moves
// needs, and below what the least recently used order moves.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/session.h"

#include "tower_program.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;

struct Traffic {
  std::int64_t moved_bytes = 0;  // in the last step
  std::int64_t least_bytes = 0;
  SessionReport report;
};

Traffic steady_traffic(std::int64_t budget_bytes, EvictionOrder order) {
  install_allocator();
  torch::manual_seed(17);
  nn::Sequential model = tower(16, 96);
  const Optimizer optimizer = sgd(*model);
  const torch::Tensor x = torch::randn({512, 96});
  Session session(
      {.budget_bytes = budget_bytes, .eviction_order = order, .overlap = Overlap::kOff});
  for (int i = 0; i < 6; ++i) {
    const auto step = session.step();
    optimizer->zero_grad();
    model->forward(x).pow(2).mean().backward();
    optimizer->step();
  }
  Traffic traffic;
  traffic.report = session.report();
  traffic.moved_bytes = traffic.report.offloaded_bytes + traffic.report.prefetched_bytes;
  traffic.least_bytes = session.moved_lower_bound_bytes();
  return traffic;
}

class SessionTraffic : public ::testing::TestWithParam<int> {};

TEST_P(SessionTraffic, IsNearTheLeastAndBelowTheLeastRecentlyUsedOrders) {
  // All that the step keeps at once, from a run with room for it.
  const std::int64_t peak = steady_traffic(mib(64), EvictionOrder::kNextUse).report.peak_bytes;
  const std::int64_t budget = peak * GetParam() / 100;
  const Traffic planned = steady_traffic(budget, EvictionOrder::kNextUse);
  const Traffic recent = steady_traffic(budget, EvictionOrder::kLeastRecentlyUsed);
  RecordProperty("moved_bytes", std::to_string(planned.moved_bytes));
  RecordProperty("least_bytes", std::to_string(planned.least_bytes));
  RecordProperty("recent_bytes", std::to_string(recent.moved_bytes));
  EXPECT_GT(planned.report.steps_on_sequence, 0);
  EXPECT_GT(planned.least_bytes, 0);
  EXPECT_GE(planned.moved_bytes, planned.least_bytes);
  EXPECT_LE(planned.moved_bytes * 100, planned.least_bytes * 120);
  EXPECT_LT(planned.moved_bytes, recent.moved_bytes);
}

INSTANTIATE_TEST_SUITE_P(PercentOfPeak, SessionTraffic, ::testing::Values(60, 33),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace plimsoll
