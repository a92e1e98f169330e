// SPDX-License-Identifier: Apache-2.0
// One thread's replay on one queue.
//
// Noun: Lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/lane_recorder.h"
#include "exec/plan_instance.h"
#include "exec/shelf.h"

namespace plimsoll::exec::detail {

// Threads: single owner, apart from free(), which any thread may call.
class Lane {
 public:
  Lane(Shelf& shelf, const LaneKind& kind);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const LaneKind& kind() const { return kind_; }

  LaneFront* front() { return &front_; }

  // Every case; front()->hit() is the common one, inline.
  void* allocate(std::int64_t bytes, AllocationKey key);
  void note(const void* pointer, std::int64_t bytes, AllocationKey key);
  void step_mark();
  // Adds what the lane did up to its last step mark. Threads: safe.
  void add_totals(ReplayStatistics& sum) const;

 private:
  // What happened since the last step mark.
  struct StepCounts {
    std::int64_t planned = 0;  // up to the last time the slow path ran
    std::int64_t escaped = 0;
    std::int64_t missed = 0;
    std::int64_t refused = 0;
    std::int64_t skipped = 0;
    bool is_detached = false;
    bool is_clean() const { return missed == 0 && refused == 0 && skipped == 0; }
  };

  void* serve(std::int64_t bytes, AllocationKey key);
  void* take(std::uint32_t slot, std::int64_t bytes, AllocationKey key);
  void* take_behind(std::int64_t bytes, AllocationKey key);
  bool change_plan(std::int64_t bytes, AllocationKey key);
  void activate(PlanInstance* instance, std::uint32_t cursor);
  void leave_active();
  void read_cursor();
  void publish_cursor();
  void miss();

  bool end_usual_step();
  void count_step();
  void end_step();
  void guess_next_plan(bool was_empty);
  void follow_shelf();
  bool make_room(const std::vector<SharedPlan>& plans);
  void sweep();
  void leave_arena();
  void leave_haunted_arena();
  void use_arena(std::shared_ptr<Arena> arena);

  LaneFront front_;
  Shelf& shelf_;
  const LaneKind kind_;
  PlanInstance* active_ = nullptr;
  PlanInstance* last_finished_ = nullptr;  // the plan at the end of the last step
  std::uint32_t cursor_ = 0;
  int miss_run_ = 0;
  int refused_run_ = 0;  // steps in a row in which something was refused
  bool awaits_note_ = false;
  StepCounts counts_;
  // Since construction, as in ReplayStatistics; stored by the owner alone.
  struct Totals {
    std::atomic<std::int64_t> steps{0}, planned{0}, escaped{0}, missed{0}, refused{0}, skipped{0},
        detached{0};
  };
  Totals totals_;
  std::vector<std::uint64_t> skipped_in_;  // per slot of the active plan: the step that skipped it
  std::uint64_t step_ = 1;

  std::shared_ptr<Arena> shared_arena_;
  std::vector<std::unique_ptr<PlanInstance>> instances_;  // of plans on the shelf
  std::vector<std::unique_ptr<PlanInstance>> leftovers_;  // of plans that went, with live blocks
  std::vector<std::shared_ptr<Arena>> old_arenas_;        // too small now, with live blocks
  std::uint64_t shelf_version_ = 0;
  LaneRecorder recorder_;
};

}  // namespace plimsoll::exec::detail
