// SPDX-License-Identifier: Apache-2.0
// Planned allocation: records what steps allocate, plans it, and replays the plan without locks.
//
// Nouns: ReplayEngine, ReplayOptions, ReplayStatistics, lane, step mark.
//
//     step 1, 2: recorded        step 3...: replayed
//     upstream --------------->  cursor over [slot][slot][slot]...
//                                   |  key and size match, all it conflicts with are dead: hand out
//                                   |  else: look ahead and behind by key, or leave it to upstream,
//                                   |        or detach until the next step mark
//
// Each thread that marks steps has a lane for each queue, with an arena of its own. Lanes of one
// role share their plans, so that a new thread of a known role replays from its first step.
#pragma once

#include <cstdint>
#include <memory>

#include "plimsoll/device/device.h"
#include "plimsoll/exec/allocation_plan.h"
#include "plimsoll/exec/lane_front.h"
#include "plimsoll/exec/recorded_step.h"
#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::exec {

struct ReplayOptions {
  // Plans are made on a thread of the engine's own; otherwise within step_mark(), which then takes
  // as long as the layout does, but makes a run repeat exactly.
  bool plan_in_background = true;
  // How far ahead and behind a request that does not match is looked for, in slots.
  int resync_window = 32;
  // Requests in a row that are nowhere in the plan before the lane gives up until the next mark.
  int detach_after = 32;
  // Plans kept for each role (training, evaluation, a last batch ...); the oldest goes first.
  int plans_per_role = 8;
  // Room above sizes that grow from step to step, in percent.
  int growth_percent = 25;
};

// Totals over all lanes since construction. A step is counted at its mark.
struct ReplayStatistics {
  std::int64_t steps = 0;
  std::int64_t planned = 0;   // requests answered from a plan
  std::int64_t escaped = 0;   // on plan, but outliving the step: left to the upstream
  std::int64_t missed = 0;    // not in the plan in use, or no plan in use
  std::int64_t refused = 0;   // in the plan, but what they conflict with was still alive
  std::int64_t skipped = 0;   // slots that the cursor went over
  std::int64_t detached = 0;  // steps given up
  std::int64_t plans_made = 0;
  std::int64_t arena_bytes = 0;  // held now by all arenas
};

namespace detail {
class Lane;
class Shelf;
}  // namespace detail

// The engine answers requests from plans, or not at all: its caller then asks the upstream itself
// and says so with note(). PlannedResource does that for any MemoryResource.
// Threads: safe, apart from construction and destruction. A lane belongs to the thread that marks
// its steps; a thread that marks none is never answered. Blocks may be freed by any thread, which
// must have been handed the block with ordinary synchronisation.
class ReplayEngine {
 public:
  // `upstream` provides the arenas and outlives the engine.
  explicit ReplayEngine(pool::MemoryResource& upstream, const ReplayOptions& options = {});
  // All blocks must have been freed.
  ~ReplayEngine();
  ReplayEngine(const ReplayEngine&) = delete;
  ReplayEngine& operator=(const ReplayEngine&) = delete;

  // Returns the planned place, aligned as the upstream's memory, or null: ask the upstream, then
  // call note(). Cost on plan: a few loads, no lock, no write that another thread reads but the
  // slot's own cell. Errors: std::bad_alloc while recording.
  void* try_allocate(std::int64_t bytes, AllocationKey key = 0,
                     device::Queue queue = device::Queue::kCompute) {
    if (detail::t_fronts.serial == serial_) [[likely]] {
      detail::LaneFront& front = *detail::t_fronts.lanes[static_cast<std::size_t>(queue)];
      if (void* place = front.hit(bytes, key)) [[likely]]
        return place;
    }
    return try_allocate_slowly(bytes, key, queue);
  }
  // Says what the upstream gave for the request that try_allocate has just left to it.
  void note(const void* pointer, std::int64_t bytes, AllocationKey key = 0,
            device::Queue queue = device::Queue::kCompute);
  // Frees a block. Returns false where it is not from a plan: the caller frees it upstream.
  // Call it before the upstream may give the address to anyone else.
  bool try_deallocate(const void* pointer) noexcept {
    constexpr auto kCompute = static_cast<std::size_t>(device::Queue::kCompute);
    if (detail::t_fronts.serial == serial_ && detail::t_fronts.lanes[kCompute]->release(pointer))
        [[likely]]
      return true;
    return try_deallocate_slowly(pointer);
  }

  // Ends the calling thread's step and begins the next one, in all its lanes.
  void step_mark();
  // Names what this thread does, for all engines; lanes made from now on share the role's plans.
  // A thread that ends leaves its lanes to the next one of its role.
  static void set_thread_role(std::uint32_t role) noexcept;
  // Puts a plan on the role's shelf, as if it had been recorded; in use from the next step mark.
  // Errors: InvalidArgument where its alignment is not the upstream's.
  void adopt(std::shared_ptr<const AllocationPlan> plan, std::uint32_t role = 0,
             device::Queue queue = device::Queue::kCompute);
  // Blocks until all plans that were asked for are on their shelf.
  void wait_for_planner();
  ReplayStatistics statistics() const;

  // Splits a free in two, for blocks that work on another queue may still use: the block keeps its
  // bytes until complete_free(). Returns false where the block is not from a plan.
  bool begin_free(const void* pointer) noexcept;
  void complete_free(const void* pointer) noexcept;
  // The queue of the lane that handed the block out; it must be from a plan.
  device::Queue queue_of(const void* pointer) const noexcept;
  // True where the block is from a plan.
  bool owns(const void* pointer) const noexcept;

 private:
  void* try_allocate_slowly(std::int64_t bytes, AllocationKey key, device::Queue queue);
  bool try_deallocate_slowly(const void* pointer) noexcept;
  void find_lanes();

  std::shared_ptr<detail::Shelf> shelf_;
  const std::uint64_t serial_;  // the shelf's
};

}  // namespace plimsoll::exec
