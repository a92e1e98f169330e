// SPDX-License-Identifier: Apache-2.0
#include "exec/lane_recorder.h"

#include <algorithm>
#include <utility>

namespace plimsoll::exec::detail {
namespace {

constexpr std::size_t kMostSeen = 8;
constexpr int kMostUnexplained = 8;
constexpr std::int64_t kLongestPause = 1024;

}  // namespace

void LaneRecorder::end_step(bool is_on_plan) {
  if (!is_recording()) {
    pass_step();
    const bool may_begin = !has_begun_ || (!is_on_plan && pause_ == 0 && !shelf_.is_planning());
    if (may_begin) begin();
    return;
  }
  Ledger& ledger = shelf_.ledger();
  bool repeats = false;
  if (previous_) {
    // Only this thread appends blocks, so their keys and sizes may be read without the lock.
    repeats = same_structure(previous_->step, current_->step);
    judge(ledger.close(previous_), repeats);
    // Two steps in a row that are alike, or that both have plans, leave nothing to learn.
    if (repeats || known_run_ >= 2 || unexplained_ >= kMostUnexplained) return stop();
  }
  previous_ = std::move(current_);
  current_ = std::make_shared<Recording>();
  ledger.succeed(previous_, current_);
}

void LaneRecorder::begin() {
  has_begun_ = true;
  has_taught_ = false;
  known_run_ = 0;
  unexplained_ = 0;
  current_ = std::make_shared<Recording>();
}

void LaneRecorder::stop() {
  Ledger& ledger = shelf_.ledger();
  if (previous_) ledger.close(previous_);
  if (current_) ledger.close(current_);
  previous_.reset();
  current_.reset();
  ledger.forget_closed();
  // What recording does not mend (memory for the arena is missing, blocks live ever longer, no two
  // steps are alike) must not be paid for in every step.
  pause_ = has_taught_ ? 0 : next_pause_;
  next_pause_ = has_taught_ ? kFirstPause : std::min(next_pause_ * 2, kLongestPause);
}

bool LaneRecorder::was_seen(const RecordedStep& step) const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [&](const RecordedStep& each) { return same_structure(each, step); });
}

void LaneRecorder::judge(RecordedStep step, bool repeats) {
  if (!repeats) step.forget_late_deaths();
  if (step.blocks.empty() || shelf_.find_cover(kind_, step)) {
    ++known_run_;
    unexplained_ = 0;
    return;
  }
  if (repeats || was_seen(step)) {
    shelf_.submit(kind_, std::move(step));
    ++known_run_;
    unexplained_ = 0;
    has_taught_ = true;
    return;
  }
  known_run_ = 0;
  ++unexplained_;
  if (seen_.size() >= kMostSeen) seen_.erase(seen_.begin());
  seen_.push_back(std::move(step));
}

}  // namespace plimsoll::exec::detail
