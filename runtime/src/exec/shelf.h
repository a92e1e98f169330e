// SPDX-License-Identifier: Apache-2.0
// What the lanes of one engine share: plans by role, the planner's thread, arenas by address.
//
// Nouns: Shelf, PlanningJob.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "plimsoll/exec/replay_engine.h"

#include "exec/ledger.h"
#include "exec/plan_instance.h"

namespace plimsoll::exec::detail {

// Which plans a lane may use.
struct LaneKind {
  std::uint32_t role = 0;
  device::Queue queue = device::Queue::kCompute;
  friend bool operator==(const LaneKind&, const LaneKind&) = default;
};

using SharedPlan = std::shared_ptr<const AllocationPlan>;

// Threads: safe, except where a method says otherwise.
class Shelf {
 public:
  Shelf(pool::MemoryResource& upstream, const ReplayOptions& options);
  ~Shelf();
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  const ReplayOptions& options() const { return options_; }
  std::int64_t alignment_bytes() const { return alignment_bytes_; }
  std::uint64_t serial() const { return serial_; }
  Ledger& ledger() { return ledger_; }
  // Sums over all lanes. Cost: O(lanes), a lock.
  ReplayStatistics statistics();

  // Grows with every change of any list of plans.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // Oldest first.
  std::vector<SharedPlan> plans(const LaneKind& kind);
  // A plan that covers the step, or null.
  SharedPlan find_cover(const LaneKind& kind, const RecordedStep& step);
  // Makes a plan for the step, on the planner's thread or here.
  void submit(const LaneKind& kind, RecordedStep step);
  bool is_planning() const { return jobs_open_.load(std::memory_order_acquire) != 0; }
  void wait_for_planner();
  void add(const LaneKind& kind, SharedPlan plan, const AllocationPlan* replaced);

  // Makes an arena and registers it. Errors: those of the upstream; DeviceOutOfMemory where there
  // are too many arenas.
  std::shared_ptr<Arena> make_arena(std::int64_t bytes, device::Queue queue);
  // Gives an arena's memory back. No block in it may be live.
  void retire_arena(Arena& arena) noexcept;
  // The arena that holds the address, or null. Lock-free.
  Arena* find_arena(const void* pointer) const noexcept;

  // Ends the planner and gives all memory back: the upstream may go. Threads may still hold the
  // shelf itself. Nobody may allocate or free any more.
  void close() noexcept;
  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  // A lane that no thread owns, or a new one; the calling thread owns it until it is returned.
  Lane* take_lane(const LaneKind& kind);
  void return_lane(Lane* lane) noexcept;

 private:
  struct PlanningJob {
    LaneKind kind;
    RecordedStep step;
  };
  struct PlanList {
    LaneKind kind;
    std::vector<SharedPlan> plans;
  };

  PlanList& list(const LaneKind& kind);  // lock_ is held
  void make_plan(const PlanningJob& job);
  void run_planner();

  static constexpr std::size_t kMostArenas = 1024;

  pool::MemoryResource& upstream_;
  const ReplayOptions options_;
  const std::int64_t alignment_bytes_;
  const std::uint64_t serial_;  // tells engines apart in threads' own tables
  Ledger ledger_;
  std::atomic<std::int64_t> plans_made_{0};
  std::atomic<std::int64_t> arena_bytes_{0};

  std::mutex lock_;
  std::vector<PlanList> lists_;                     // guarded by lock_
  std::vector<std::unique_ptr<Lane>> lanes_;        // guarded by lock_
  std::vector<Lane*> idle_lanes_;                   // guarded by lock_
  std::vector<std::shared_ptr<Arena>> all_arenas_;  // guarded by lock_
  std::array<std::atomic<Arena*>, kMostArenas> arenas_{};
  std::atomic<std::size_t> arenas_end_{0};
  std::atomic<std::uint64_t> version_{1};

  std::atomic<bool> is_closed_{false};

  std::mutex jobs_lock_;
  std::condition_variable jobs_changed_;
  std::deque<PlanningJob> jobs_;  // guarded by jobs_lock_
  bool is_stopping_ = false;      // guarded by jobs_lock_
  std::atomic<int> jobs_open_{0};
  std::thread planner_;  // started by the first job, guarded by jobs_lock_
};

}  // namespace plimsoll::exec::detail
