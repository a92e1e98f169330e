// SPDX-License-Identifier: Apache-2.0
// Training on the device gives the CPU's bits: every model, optimizer, number of threads, stream
// and delay.
#include <algorithm>
#include <string>

#include "device_fixture.h"
#include "training_runs.h"

namespace plimsoll::simgpu {
namespace {

// LibTorch multiplies a recurrent layer's inputs of all time steps at once, on the CPU only: the
// same sums in another order. Equal in value, not in bits.
bool is_recurrent(const std::string& model) { return model == "lstm"; }
constexpr double kRecurrentTolerance = 1e-5;

void expect_equal(const TrainingRun& run, const Outcome& on_cpu, const torch::Device& device,
                  const std::string& name) {
  const Outcome on_device = train(run, device);
  if (is_recurrent(name)) {
    EXPECT_LE(largest_difference(on_cpu, on_device), kRecurrentTolerance);
  } else {
    EXPECT_EQ(first_difference(on_cpu, on_device), "");
  }
}

class Training : public OnDevice, public ::testing::WithParamInterface<std::string> {
 protected:
  void TearDown() override {
    at::set_num_threads(2);
    OnDevice::TearDown();
  }
};

TEST_P(Training, HasTheCpusBits) {
  const TrainingRun run{.model = small_model(GetParam())};
  const Outcome on_cpu = train(run, at::kCPU);
  expect_equal(run, on_cpu, sim(), GetParam());
  set_delays({.seed = 1, .longest_us = 100});
  const c10::StreamGuard guard(pool_stream(1));
  expect_equal(run, on_cpu, sim(1), GetParam());
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(EveryModel, Training, ::testing::ValuesIn(every_model()), test_name);

// A few models that have every kind of layer between them.
class Settings : public Training {};

TEST_P(Settings, AdamHasTheCpusBits) {
  for (const OptimizerName optimizer : {OptimizerName::kAdam, OptimizerName::kAdamW}) {
    const TrainingRun run{.model = small_model(GetParam()), .optimizer = optimizer};
    expect_equal(run, train(run, at::kCPU), sim(), GetParam());
  }
}

TEST_P(Settings, AutocastHasTheCpusBits) {
  const TrainingRun run{.model = small_model(GetParam()), .is_autocast = true};
  expect_equal(run, train(run, at::kCPU), sim(), GetParam());
}

TEST_P(Settings, OneThreadHasTheCpusBits) {
  at::set_num_threads(1);
  const TrainingRun run{.model = small_model(GetParam())};
  expect_equal(run, train(run, at::kCPU), sim(), GetParam());
}

TEST_P(Settings, NoDelaySeedChangesABit) {
  const TrainingRun run{.model = small_model(GetParam()), .steps = 2};
  const Outcome on_cpu = train(run, at::kCPU);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("delay seed " + std::to_string(seed));
    set_delays({.seed = seed, .longest_us = 60});
    expect_equal(run, on_cpu, sim(), GetParam());
  }
}

TEST_P(Settings, ACounterGeneratorGivesTheSameBitsEveryTime) {
  DeviceOptions options;
  options.generator = GeneratorKind::kCounter;
  install(options);
  const TrainingRun run{.model = small_model(GetParam())};
  const Outcome first = train(run, sim());
  set_delays({.seed = 5, .longest_us = 60});
  EXPECT_EQ(first_difference(first, train(run, sim())), "");
}

INSTANTIATE_TEST_SUITE_P(SomeModels, Settings,
                         ::testing::Values("resnet18", "mobilenet-v2", "vit", "gpt"), test_name);

}  // namespace
}  // namespace plimsoll::simgpu
