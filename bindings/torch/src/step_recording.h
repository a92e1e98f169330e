// SPDX-License-Identifier: Apache-2.0
// What a session writes down of one step, and the steps it knows.
//
// Nouns: Slot (a storage's number within a step, by first touch), StepRecording, KnownStep,
// StepBook.
//
// A step is the same as a known one exactly if the hash of its operators so far (names, slots,
// sizes and writes of what they touch) equals the known step's hash at the same place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/plan/access_sequence.h"
#include "plimsoll/plan/swap_plan.h"

namespace plimsoll::detail {

using Slot = std::int32_t;
inline constexpr Slot kNoSlot = -1;

struct RecordedTouch {
  Slot slot;
  bool writes;
};

struct RecordedOp {
  std::size_t first_touch = 0;     // into StepRecording::touches
  std::int64_t room_bytes = 0;     // most it had allocated at one time: results and scratch
  std::int64_t largest_bytes = 0;  // the largest single allocation
  std::int64_t results_bytes = 0;  // of these, what results keep
  std::int64_t operand_bytes = 0;  // distinct, rounded
  bool can_be_cut = false;         // would run in chunks where it does not fit
  const std::string* name = nullptr;
};

struct RecordedSlot {
  std::int64_t bytes = 0;  // rounded
  bool is_immovable = false;
  // Held before the step began. Its slot in the step before, kNoSlot where that is not known.
  bool existed = false;
  Slot previous = kNoSlot;
  bool is_alive_at_end = true;
  std::int64_t released_after = -1;  // operator, where it is not alive at the end; -1: before any
};

// A storage of the step before that was freed without being touched.
struct RecordedRelease {
  Slot previous;
  std::int64_t released_after;
};

struct StepRecording {
  std::vector<RecordedOp> ops;
  std::vector<std::uint64_t> prefix;  // hash of everything up to and including operator i
  std::vector<RecordedTouch> touches;
  std::vector<RecordedSlot> slots;
  std::vector<RecordedRelease> releases;

  void clear();
  std::int64_t op_count() const { return static_cast<std::int64_t>(ops.size()); }
  // The operator that needs most (operands, results and scratch) of those that cannot be cut into
  // chunks. -1 where there is none.
  std::int64_t largest_op() const;
  std::int64_t need_bytes(std::int64_t op) const;
  // Hash of what the planner sees beyond the prefix: lifetimes and room.
  std::uint64_t lifetimes_hash() const;
  // The planner's form. Operators before the first are none: needs at least one.
  plan::AccessSequence to_sequence() const;
};

// A step seen whole, with its uses by slot and the moves planned for a budget.
class KnownStep {
 public:
  // Without a budget no moves are planned; next uses are known all the same.
  KnownStep(StepRecording recording, std::optional<std::int64_t> plan_budget_bytes);

  bool is_planned() const { return is_planned_; }

  const StepRecording& recording() const { return recording_; }
  std::uint64_t lifetimes_hash() const { return lifetimes_hash_; }
  const plan::SwapPlan& swaps() const { return swaps_; }
  const plan::AccessSequence& sequence() const { return sequence_; }

  // Operators from `op` (not counted) to the slot's next touch in this step or, for a slot that
  // lives on, the next; plan::kNeverUsed where none is known.
  std::int64_t ops_until_use(Slot slot, std::int64_t op, bool lives_on) const;
  // Slots that leave after operator `op`, and those that may come back before it.
  const std::vector<Slot>& leaving(std::int64_t op) const { return leaving_.at(index(op)); }
  const std::vector<Slot>& returning(std::int64_t op) const { return returning_.at(index(op)); }
  // Slots that must be out before the operator after `op` runs, for the plan to hold.
  const std::vector<Slot>& due(std::int64_t op) const { return due_.at(index(op)); }

 private:
  static std::size_t index(std::int64_t op) { return static_cast<std::size_t>(op); }

  StepRecording recording_;
  std::uint64_t lifetimes_hash_;
  plan::AccessSequence sequence_;
  bool is_planned_;
  plan::SwapPlan swaps_;
  std::vector<std::size_t> first_use_;  // slot -> into uses_, one past the end last
  std::vector<std::int64_t> uses_;      // operators, ascending within a slot
  std::vector<std::vector<Slot>> leaving_;
  std::vector<std::vector<Slot>> returning_;
  std::vector<std::vector<Slot>> due_;
};

// The steps seen so far: training, the last smaller batch, evaluation, each by itself. One sequence
// may stand there several times, with lifetimes that differ: what a step finds from the step before
// depends on which step that was.
class StepBook {
 public:
  static constexpr std::size_t kMostSteps = 16;
  // Of one sequence. Lifetimes beyond these are planned for when they come twice in a row; until
  // then such a step goes by the plan made last. (What a garbage collector frees comes at any
  // time.)
  static constexpr std::size_t kMostVariants = 4;
  // A plan is made when a step has been seen once, since steps mostly repeat. After this many in a
  // row that were all new (every batch of another length), it waits until the step comes again.
  static constexpr int kNewStepsPlanned = 4;

  // Returns the known step whose first `op` + 1 operators hash to `prefix`, preferring `preferred`;
  // null where there is none.
  std::shared_ptr<const KnownStep> find(std::int64_t op, std::uint64_t prefix,
                                        const std::shared_ptr<const KnownStep>& preferred) const;
  // Keeps the recording and plans its moves, unless it is known with the same lifetimes. Returns
  // the step that now stands for it.
  std::shared_ptr<const KnownStep> learn(const StepRecording& recording,
                                         std::int64_t plan_budget_bytes);
  std::size_t size() const { return steps_.size(); }
  std::int64_t plans_made() const { return plans_made_; }

 private:
  std::vector<std::shared_ptr<const KnownStep>> steps_;  // the one used last at the back
  int new_in_a_row_ = 0;
  std::uint64_t refused_lifetimes_ = 0;  // the last that were not planned for
  std::int64_t plans_made_ = 0;
};

}  // namespace plimsoll::detail
