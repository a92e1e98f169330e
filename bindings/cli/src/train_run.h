// SPDX-License-Identifier: Apache-2.0
// The loop behind `train`: one run under a budget, and beside it, where asked, stock.
//
// Nouns: TrainRun, TrainRecord.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/train/measure.h"
#include "plimsoll/train/trainer.h"

#include "console.h"
#include "train_flags.h"

namespace plimsoll::cli {

// What every step left behind; entry i belongs to step i.
struct TrainRecord {
  std::vector<float> losses;
  std::vector<float> stock_losses;
  std::vector<double> seconds;
  std::vector<double> stock_seconds;
  std::vector<std::int64_t> moved_bytes;
  // The first difference found, "" while there is none.
  std::string first_difference;
  SessionReport report;
  std::int64_t moved_lower_bound_bytes = 0;
};

// Holds the two sides. Threads: single owner.
class TrainRun {
 public:
  // `budget_bytes` 0 means no limit (level allocator only).
  TrainRun(const TrainPlan& plan, const train::Data& data, std::int64_t budget_bytes,
           bool against_stock);
  ~TrainRun();
  TrainRun(const TrainRun&) = delete;
  TrainRun& operator=(const TrainRun&) = delete;

  train::Trainer& trainer() { return *ours_; }
  // Takes up a saved run on both sides.
  void resume(const std::string& data_name, const std::string& path);
  // One step of ours, and of stock: the sides take turns in going first.
  // Errors: DeviceOutOfMemory where the budget does not do, HostOutOfMemory.
  void step(TrainRecord& record);
  // Compares everything and completes the record.
  void finish(TrainRecord& record);
  double evaluate(const data::Dataset& test, const train::StopCheck& check);
  std::vector<SessionEvent> events() const;

 private:
  float step_ours();
  // Unseen by the session, so that it costs what stock costs.
  float step_stock();
  float step_limited();

  TrainPlan plan_;
  std::int64_t budget_bytes_;
  // Bytes that the level-0 account holds for our side; the rest belongs to stock.
  std::int64_t own_bytes_ = 0;
  std::int64_t own_peak_bytes_ = 0;
  std::string own_peak_op_;
  std::unique_ptr<train::Trainer> stock_;
  std::unique_ptr<train::Trainer> ours_;
  std::unique_ptr<Session> session_;
};

// The median; 0 of nothing.
double median(std::vector<double> values);

}  // namespace plimsoll::cli
