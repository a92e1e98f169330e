// SPDX-License-Identifier: Apache-2.0
#include "session_runs.h"

#include <algorithm>
#include <memory>

#include "device_fixture.h"

namespace plimsoll::simgpu {
namespace {

// What the run needs at least where it did not fit; 0 where it did.
std::int64_t try_within(const TrainingRun& run, SessionOptions options, int index,
                        Budgeted& result) {
  options.device = sim(index);
  Session session(options);
  const StepScope scope = [&] { return std::make_shared<Step>(session.step()); };
  try {
    result.outcome = train(run, options.device, scope);
    result.report = session.report();
    return 0;
  } catch (const c10::OutOfMemoryError&) {
    return session.report().shortage_bytes;
  }
}

}  // namespace

Budgeted train_within(const TrainingRun& run, SessionOptions options, int index) {
  Budgeted result;
  const std::int64_t shortage = try_within(run, options, index, result);
  TORCH_CHECK_WITH(OutOfMemoryError, shortage == 0, "a step needs ", shortage, " bytes, not ",
                   options.budget_bytes);
  return result;
}

std::int64_t stock_peak_bytes(const TrainingRun& run, Outcome& outcome) {
  const std::int64_t before = memory_counts(0).live_bytes;
  reset_peak(0);
  outcome = train(run, sim());
  return memory_counts(0).peak_bytes - before;
}

Budgeted train_within_or_least(const TrainingRun& run, SessionOptions options) {
  Budgeted result;
  while (const std::int64_t shortage = try_within(run, options, 0, result)) {
    options.budget_bytes = std::max(shortage, options.budget_bytes + 512);
  }
  return result;
}

}  // namespace plimsoll::simgpu
