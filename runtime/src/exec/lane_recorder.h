// SPDX-License-Identifier: Apache-2.0
// Decides which steps of a lane are recorded, and when what was recorded is worth a plan.
//
// Noun: LaneRecorder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exec/ledger.h"
#include "exec/shelf.h"

namespace plimsoll::exec::detail {

// A step is worth a plan once it has been seen twice: a second time in a row, which also shows how
// far its blocks reach into the next step, or again later (training and evaluation in turn), where
// blocks that outlive the step are left out of the plan. Recording ends when the steps are known. A
// program that never repeats is recorded ever more seldom.
// Threads: single owner.
class LaneRecorder {
 public:
  LaneRecorder(Shelf& shelf, const LaneKind& kind) : shelf_(shelf), kind_(kind) {}

  bool is_recording() const { return current_ != nullptr; }
  void note(const void* pointer, std::int64_t bytes, AllocationKey key) {
    shelf_.ledger().note(current_, pointer, bytes, key);
  }
  bool has_begun() const { return has_begun_; }
  // Ends a step in which nothing was recorded.
  void pass_step() {
    if (pause_ > 0) --pause_;
  }
  // Ends a step. `is_on_plan`: every request was answered from a plan, to the last slot.
  void end_step(bool is_on_plan);

 private:
  static constexpr std::int64_t kFirstPause = 4;

  void begin();
  void stop();
  void judge(RecordedStep step, bool repeats);
  bool was_seen(const RecordedStep& step) const;

  Shelf& shelf_;
  const LaneKind kind_;
  std::shared_ptr<Recording> previous_;
  std::shared_ptr<Recording> current_;
  std::vector<RecordedStep> seen_;  // that did not repeat at once, oldest first
  bool has_begun_ = false;
  bool has_taught_ = false;  // a plan came of this recording
  int known_run_ = 0;        // judged steps in a row that had a plan
  int unexplained_ = 0;      // judged steps in a row that had none
  std::int64_t pause_ = 0;   // steps until recording may begin again
  std::int64_t next_pause_ = kFirstPause;
};

}  // namespace plimsoll::exec::detail
