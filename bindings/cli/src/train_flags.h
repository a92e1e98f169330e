// SPDX-License-Identifier: Apache-2.0
// The flags of `train`, checked before any work starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>

#include "plimsoll/base/size.h"
#include "plimsoll/session.h"
#include "plimsoll/train/trainer.h"

namespace plimsoll::cli {

enum class TrainLevel : std::uint8_t { kAllocator, kEager };

// As they were typed; "" where absent.
struct TrainFlags {
  std::string model;
  std::string budget = "none";
  std::string level = "auto";
  std::string policy = "auto";
  std::string data = "synthetic";
  std::string batch = "32";
  std::string steps;
  std::string epochs;
  std::string optimizer = "sgd";
  std::string learning_rate;
  std::string autocast;
  std::string seed = "1";
  std::string threads;
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
  std::int64_t steps = 20;
  std::int64_t epochs = 0;  // in place of steps, where above 0
  int threads = 0;          // 0: LibTorch's default
  SizeSpec budget;
  TrainLevel level = TrainLevel::kEager;
  SessionOptions session;  // its budget is set once it is known
};

// `--resume <(cat run)`: a pipe or a terminal, from which what has been read is gone.
bool is_read_once(const std::filesystem::path& path);

// Errors: InvalidArgument that names flag, value and what is right; also for files that cannot be
// written, so that nothing is lost at the end of a long run.
TrainPlan check_train_flags(const TrainFlags& flags);

}  // namespace plimsoll::cli
