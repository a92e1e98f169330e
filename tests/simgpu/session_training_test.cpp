// SPDX-License-Identifier: Apache-2.0
// Training in sessions on the device: every model, optimizer, number of threads, stream and delay
// gives the bits that the device gives alone, within the budget, and the checker is silent.
#include <algorithm>
#include <string>

#include "plimsoll/device/fault_plan.h"

#include "device_fixture.h"
#include "session_runs.h"

namespace plimsoll::simgpu {
namespace {

class SessionTraining : public OnDevice, public ::testing::WithParamInterface<std::string> {
 protected:
  void TearDown() override {
    at::set_num_threads(2);
    OnDevice::TearDown();
  }

  // Within so much of stock's peak, or the least that works where that is more.
  static Budgeted within(const TrainingRun& run, std::int64_t budget_bytes) {
    const Budgeted result = train_within_or_least(run, {.budget_bytes = budget_bytes});
    const SessionReport& report = result.report;
    EXPECT_LE(report.peak_bytes, report.budget_bytes);
    EXPECT_GT(report.offloaded_bytes, 0);
    EXPECT_GT(report.prefetched_bytes, 0);
    EXPECT_LE(report.budget_bytes,
              std::max(budget_bytes, report.lower_bound_bytes + report.lower_bound_bytes * 3 / 20));
    return result;
  }

  // A third of stock's peak.
  static void expect_equal(const TrainingRun& run) {
    Outcome stock;
    const std::int64_t peak = stock_peak_bytes(run, stock);
    EXPECT_EQ(first_difference(stock, within(run, peak / 3).outcome), "");
  }
};

TEST_P(SessionTraining, HasTheDevicesBitsAtEveryBudget) {
  const TrainingRun run{.model = small_model(GetParam())};
  Outcome stock;
  const std::int64_t peak = stock_peak_bytes(run, stock);
  for (const std::int64_t budget : {peak / 2, peak / 4, std::int64_t{512}}) {
    SCOPED_TRACE(std::to_string(budget) + " bytes");
    EXPECT_EQ(first_difference(stock, within(run, budget).outcome), "");
  }
}

TEST_P(SessionTraining, HasThemWithAdamAndWeightDecay) {
  expect_equal({.model = small_model(GetParam()), .optimizer = OptimizerName::kAdamW});
}

TEST_P(SessionTraining, HasThemWithAdamAutocastOneThreadAndASideStreamTogether) {
  at::set_num_threads(1);
  const c10::StreamGuard guard(pool_stream());
  expect_equal(
      {.model = small_model(GetParam()), .optimizer = OptimizerName::kAdam, .is_autocast = true});
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(EveryModel, SessionTraining, ::testing::ValuesIn(every_model()),
                         test_name);

// A few models that have every kind of layer between them.
class SessionSettings : public SessionTraining {};

TEST_P(SessionSettings, WithoutCopiesAheadItHasTheDevicesBits) {
  const TrainingRun run{.model = small_model(GetParam())};
  Outcome stock;
  const std::int64_t peak = stock_peak_bytes(run, stock);
  const Budgeted inside =
      train_within_or_least(run, {.budget_bytes = peak / 3, .overlap = Overlap::kOff});
  EXPECT_EQ(first_difference(stock, inside.outcome), "");
}

TEST_P(SessionSettings, AFileBelowAFewHostBytesHasTheDevicesBits) {
  const TrainingRun run{.model = small_model(GetParam())};
  Outcome stock;
  const std::int64_t peak = stock_peak_bytes(run, stock);
  device::FaultPlan calls;
  const Budgeted inside = train_within_or_least(run, {.budget_bytes = peak / 4,
                                                      .host_limit_bytes = 4096,
                                                      .spill_folder = ::testing::TempDir(),
                                                      .testing_faults = &calls});
  EXPECT_EQ(first_difference(stock, inside.outcome), "");
  EXPECT_GT(calls.calls(device::FaultKind::kFileWrite), 0);
  EXPECT_GT(calls.calls(device::FaultKind::kFileRead), 0);
}

// Copies are seldom over when somebody asks: what was begun ahead is needed, ends or leaves again
// while it runs.
TEST_P(SessionSettings, ASlowLinkAndPoisonHaveTheDevicesBits) {
  const TrainingRun run{.model = small_model(GetParam())};
  Outcome stock;
  const std::int64_t peak = stock_peak_bytes(run, stock);
  for (const bool is_poisoned : {false, true}) {
    start_timeline({.to_device_bytes_per_ns = 0.2, .to_host_bytes_per_ns = 0.2});
    const Budgeted inside = train_within_or_least(
        run, {.budget_bytes = peak / 3, .overlap = Overlap::kOn, .poison = is_poisoned});
    stop_timeline();
    EXPECT_EQ(first_difference(stock, inside.outcome), "");
  }
}

TEST_P(SessionSettings, ACounterGeneratorHasTheDevicesBits) {
  DeviceOptions options;
  options.generator = GeneratorKind::kCounter;
  install(options);
  expect_equal({.model = small_model(GetParam())});
}

TEST_P(SessionSettings, FreedPinnedMemoryThatNobodyGuardsIsNotReusedEarly) {
  DeviceOptions options;
  options.guards_pinned_frees = false;
  install(options);
  expect_equal({.model = small_model(GetParam())});
}

TEST_P(SessionSettings, NoDelaySeedChangesABit) {
  const TrainingRun run{.model = small_model(GetParam())};
  Outcome stock;
  const std::int64_t peak = stock_peak_bytes(run, stock);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("delay seed " + std::to_string(seed));
    set_delays({.seed = seed, .longest_us = 15});
    EXPECT_EQ(first_difference(stock, within(run, peak / 3).outcome), "");
  }
}

INSTANTIATE_TEST_SUITE_P(SomeModels, SessionSettings,
                         ::testing::Values("resnet18", "mobilenet-v2", "vit", "gpt"), test_name);

}  // namespace
}  // namespace plimsoll::simgpu
