// SPDX-License-Identifier: Apache-2.0
#include "train_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/error.h"
#include "plimsoll/train/checkpoint.h"
#include "plimsoll/train/comparison.h"

namespace plimsoll::cli {
namespace {

AllocatorOptions unlimited() { return {.limit_bytes = 0, .attribute = false}; }

}  // namespace

TrainRun::TrainRun(const TrainPlan& plan, const train::Data& data, std::int64_t budget_bytes,
                   bool against_stock)
    : plan_(plan), budget_bytes_(budget_bytes) {
  install_allocator(unlimited());
  if (against_stock) stock_ = std::make_unique<train::Trainer>(plan.options, data);
  const std::int64_t before = allocator_statistics().live_bytes;
  ours_ = std::make_unique<train::Trainer>(plan.options, data);
  own_bytes_ = allocator_statistics().live_bytes - before;
  if (plan.level == TrainLevel::kEager) {
    SessionOptions session = plan.session;
    session.budget_bytes = budget_bytes;
    session_ = std::make_unique<Session>(session);
  }
}

TrainRun::~TrainRun() = default;

void TrainRun::resume(const std::string& data_name, const std::string& path) {
  if (stock_) train::resume_run(*stock_, data_name, path);
  const std::int64_t before = allocator_statistics().live_bytes;
  train::resume_run(*ours_, data_name, path);
  own_bytes_ += allocator_statistics().live_bytes - before;
}

float TrainRun::step_limited() {
  // The account is the process's: what lives beside our side is let in on top of the limit.
  const std::int64_t others = allocator_statistics().live_bytes - own_bytes_;
  AllocatorOptions options;
  if (budget_bytes_ > 0) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    options.limit_bytes = std::min(budget_bytes_, kMost - others) + others;
  }
  install_allocator(options);
  reset_allocator_statistics();
  try {
    const float loss = ours_->step();
    const AllocatorStatistics statistics = allocator_statistics();
    install_allocator(unlimited());
    own_bytes_ = statistics.live_bytes - others;
    if (statistics.peak_bytes - others > own_peak_bytes_) {
      own_peak_bytes_ = statistics.peak_bytes - others;
      own_peak_op_ = statistics.peak_op;
    }
    return loss;
  } catch (const c10::OutOfMemoryError& error) {
    install_allocator(unlimited());
    throw DeviceOutOfMemory(error.what_without_backtrace(), {.limit_bytes = budget_bytes_});
  }
}

float TrainRun::step_ours() {
  return session_ ? train::step_inside(*ours_, *session_) : step_limited();
}

float TrainRun::step_stock() {
  if (!session_) return stock_->step();
  const Pause pause = session_->pause();
  return stock_->step();
}

void TrainRun::step(TrainRecord& record) {
  const auto run_stock = [&] {
    if (!stock_) return;
    record.stock_losses.push_back(step_stock());
    record.stock_seconds.push_back(stock_->last_step_seconds());
  };
  const bool stock_first = record.losses.size() % 2 == 0;
  if (stock_first) run_stock();
  record.losses.push_back(step_ours());
  record.seconds.push_back(ours_->last_step_seconds());
  if (session_) {
    record.report = session_->report();
    record.moved_bytes.push_back(record.report.offloaded_bytes + record.report.prefetched_bytes);
  }
  if (!stock_first) run_stock();
  if (stock_ && record.first_difference.empty() &&
      !train::is_same_loss(record.stock_losses.back(), record.losses.back())) {
    record.first_difference =
        fmt::format("the loss of step {} is {} against {}", record.losses.size(),
                    record.losses.back(), record.stock_losses.back());
  }
}

void TrainRun::finish(TrainRecord& record) {
  if (session_) {
    record.report = session_->report();
    record.moved_lower_bound_bytes = session_->moved_lower_bound_bytes();
  } else {
    record.report.budget_bytes = budget_bytes_;
    record.report.peak_bytes = own_peak_bytes_;
    record.report.peak_op = own_peak_op_;
    record.report.persistent_bytes = own_bytes_;
    record.report.lower_bound_bytes = own_peak_bytes_;
    record.report.pinned_by = own_peak_op_;
  }
  if (stock_ && record.first_difference.empty())
    record.first_difference = train::first_difference(*stock_, *ours_);
}

double TrainRun::evaluate(const data::Dataset& test, const train::StopCheck& check) {
  if (session_) return train::evaluate_inside(*ours_, *session_, test, check);
  return ours_->evaluate(test, nullptr, test.count(), check);
}

std::vector<SessionEvent> TrainRun::events() const {
  return session_ ? session_->events() : std::vector<SessionEvent>{};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace plimsoll::cli
