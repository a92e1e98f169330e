// SPDX-License-Identifier: Apache-2.0
// Follows a step against the steps that are known, writes it down, and says what evictions cost.
//
// Nouns: Track (what is known of one storage), StepTracker.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plimsoll/plan/next_use.h"

#include "step_recording.h"

namespace plimsoll::detail {

// Lives inside the storage it speaks of.
struct Track {
  std::int64_t bytes = 0;  // rounded
  bool is_immovable = false;
  std::int64_t step = -1;  // the last step that touched it, and its slot there
  Slot slot = kNoSlot;
  std::int64_t last_use = 0;  // on the tracker's clock of operators
  // The plan wants it out until its next touch.
  bool is_leaving = false;
};

struct TrackedTouch {
  Track* track;
  bool writes;
};

// What a known step says about the operator that begins.
struct ExpectedRoom {
  bool is_known = false;
  std::int64_t bytes = 0;
  std::int64_t largest_bytes = 0;
};

// Single owner, under the session's lock. Tracks must be forgotten before they die.
class StepTracker {
 public:
  // With `always_least_recent`, known steps are neither looked up nor made.
  explicit StepTracker(bool always_least_recent) : always_least_recent_(always_least_recent) {}

  void begin_step();
  // Learns the step where it is `complete`; plans its moves for `plan_budget_bytes`.
  void end_step(bool is_complete, std::int64_t plan_budget_bytes);
  bool is_in_step() const { return is_in_step_; }

  // An operator begins that touches these storages, each named once.
  ExpectedRoom begin_op(std::uint64_t op_hash, const std::string& name,
                        std::span<const TrackedTouch> touches);
  // It has made a storage.
  void add_result(Track& track);
  // It has ended.
  void end_op(std::int64_t room_bytes, std::int64_t largest_bytes);
  // After begin_op: that operator would run in chunks where it does not fit.
  void mark_can_be_cut() { recording_.ops.back().can_be_cut = true; }
  // The most that an operator of this step has needed which cannot be cut.
  std::int64_t largest_need_bytes() const { return largest_need_bytes_; }
  // Outside of a step, only the clock moves on.
  void touch_outside(Track& track) { track.last_use = ++clock_; }
  // The storage dies, or is handed back.
  void forget(Track& track);

  double eviction_cost(const Track& track, plan::HostCopy host_copy) const;
  // In the same unit: bytes moved for each operator for which room is gained.
  double slide_cost(std::int64_t bytes) const;

  // After end_op: storages that the plan wants out now, and those it wants back. Nulls for such as
  // are unknown.
  std::vector<Track*> leaving() const;
  std::vector<Track*> due() const;  // those that must be out before the next operator
  std::vector<Track*> returning();
  // One of them could not come back yet: it is asked for again until it is used.
  void ask_again(const Track& track) { asked_.push_back({track.slot, current_op()}); }
  // It left, for whatever reason. Where the plan did not want that, it is asked back in time.
  void note_eviction(const Track& track);

  const StepRecording& recording() const { return recording_; }
  // The step that the last finished step was, null where it was not learnt.
  const std::shared_ptr<const KnownStep>& last_known() const { return last_known_; }
  std::size_t known_steps() const { return book_.size(); }
  std::int64_t plans_made() const { return book_.plans_made(); }
  std::int64_t steps() const { return step_ + 1; }
  std::int64_t steps_on_sequence() const { return steps_on_sequence_; }

 private:
  Slot touch(Track& track, bool writes);
  void follow();
  Track* track_of(Slot slot) const;
  std::int64_t current_op() const { return recording_.op_count() - 1; }

  const bool always_least_recent_;
  StepBook book_;
  StepRecording recording_;
  std::uint64_t hash_ = 0;
  std::int64_t step_ = -1;
  std::int64_t clock_ = 0;
  std::int64_t largest_need_bytes_ = 0;
  bool is_in_step_ = false;
  bool has_diverged_ = false;  // from every known step
  std::shared_ptr<const KnownStep> following_;
  std::shared_ptr<const KnownStep> last_known_;
  std::vector<Track*> tracks_;           // by slot of this step (of the last one between steps)
  std::vector<Track*> previous_tracks_;  // by slot of the step before
  struct Asked {
    Slot slot;
    std::int64_t from_op;
  };
  std::vector<Asked> asked_;  // to come back, beside what the plan says
  std::int64_t steps_on_sequence_ = 0;
};

}  // namespace plimsoll::detail
