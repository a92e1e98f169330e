// SPDX-License-Identifier: Apache-2.0
// The flags of `train`, checked before any work starts.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "plimsoll/base/size.h"
#include "plimsoll/session.h"
#include "plimsoll/train/trainer.h"

namespace plimsoll::cli {

enum class TrainLevel : std::uint8_t { kAllocator, kEager };

// As they were typed.
struct TrainFlags {
  std::string model;
  std::string budget = "none";
  std::string level = "auto";
  std::string policy = "auto";
  std::string data = "synthetic";
  std::int64_t batch = 32;
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  std::string optimizer = "sgd";
  double learning_rate = 0;
  std::string autocast;
  std::uint64_t seed = 1;
  int threads = 0;
  std::string host_limit;
  std::string spill;
  bool against_stock = false;
  bool evaluate = false;
  std::string save;
  std::string resume;
  std::string report;
  std::string trace;

  void declare(CLI::App& app);
};

// As they are meant.
struct TrainPlan {
  train::TrainOptions options;
  SizeSpec budget;
  TrainLevel level = TrainLevel::kEager;
  SessionOptions session;  // its budget is set once it is known
};

// Errors: InvalidArgument that names flag, value and what is right; also for files that cannot be
// written, so that nothing is lost at the end of a long run.
TrainPlan check_train_flags(const TrainFlags& flags);

}  // namespace plimsoll::cli
