// SPDX-License-Identifier: Apache-2.0
// Training inside sessions on the device.
//
// Nouns: Budgeted.
#pragma once

#include <cstdint>

#include "plimsoll/session.h"

#include "training_runs.h"

namespace plimsoll::simgpu {

struct Budgeted {
  Outcome outcome;
  SessionReport report;
};

// Each step of the run is a step of one session on sim:`index`, made before the model moves there.
// Errors: c10::OutOfMemoryError.
Budgeted train_within(const TrainingRun& run, SessionOptions options, int index = 0);

// The most that the run takes of sim:0 at one time without a session.
std::int64_t stock_peak_bytes(const TrainingRun& run, Outcome& outcome);

// Trains within `options.budget_bytes`, or within the least budget that works where that is more.
Budgeted train_within_or_least(const TrainingRun& run, SessionOptions options);

}  // namespace plimsoll::simgpu
