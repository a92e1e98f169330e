// SPDX-License-Identifier: Apache-2.0
// Runs a model stock and inside a session, in turns, and compares every bit after every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/train/measure.h"

namespace plimsoll::train {

// The names of all models of the zoo; of those but the deepest of a kind; of those that run under
// bf16 autocast here.
std::vector<std::string> every_model();
std::vector<std::string> short_models();
std::vector<std::string> autocast_models();

// What one model needs, measured once per process and options.
struct Needs {
  TrainOptions options;
  Data data;
  StockMeasure stock;
  MinimumBudget minimum;
};
Needs measure_needs(const std::string& model, OptimizerKind optimizer, bool autocast);

// Five steps at each of 50 %, 25 % and the least budget (percentages below the least are raised to
// it). Reports differences as test failures that name model and budget.
void expect_equal_at_every_budget(const Needs& needs);

// A test's name from a model's.
std::string as_test_name(std::string model);

}  // namespace plimsoll::train
