// SPDX-License-Identifier: Apache-2.0
#include "exec/shelf.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "plimsoll/base/error.h"

#include "exec/lane.h"

namespace plimsoll::exec::detail {
namespace {

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

RecordedStep as_recorded(const AllocationPlan& plan) {
  RecordedStep step;
  step.blocks.reserve(plan.size());
  for (const PlannedSlot& slot : plan.slots())
    step.blocks.push_back({slot.key, slot.capacity_bytes, slot.death});
  return step;
}

}  // namespace

Shelf::Shelf(pool::MemoryResource& upstream, const ReplayOptions& options)
    : upstream_(upstream),
      options_(options),
      alignment_bytes_(upstream.alignment_bytes()),
      serial_(next_serial()) {
  if (options.resync_window < 0 || options.detach_after < 1 || options.plans_per_role < 1 ||
      options.growth_percent < 0 || options.growth_percent > 100)
    throw InvalidArgument(
        "replay options: a window of at least 0 slots, at least 1 miss before detaching, at least "
        "1 plan a role and 0 to 100 % growth are right");
}

Shelf::~Shelf() = default;

void Shelf::close() noexcept {
  {
    const std::lock_guard guard(jobs_lock_);
    is_stopping_ = true;
  }
  jobs_changed_.notify_all();
  if (planner_.joinable()) planner_.join();
  const std::lock_guard guard(lock_);
  for (const std::shared_ptr<Arena>& arena : all_arenas_) arena->release();
  for (std::atomic<Arena*>& place : arenas_) place.store(nullptr, std::memory_order_release);
  is_closed_.store(true, std::memory_order_release);
}

Shelf::PlanList& Shelf::list(const LaneKind& kind) {
  for (PlanList& each : lists_)
    if (each.kind == kind) return each;
  return lists_.emplace_back(PlanList{kind, {}});
}

ReplayStatistics Shelf::statistics() {
  ReplayStatistics sum{.plans_made = plans_made_.load(std::memory_order_relaxed),
                       .arena_bytes = arena_bytes_.load(std::memory_order_relaxed)};
  const std::lock_guard guard(lock_);
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->add_totals(sum);
  return sum;
}

std::vector<SharedPlan> Shelf::plans(const LaneKind& kind) {
  const std::lock_guard guard(lock_);
  return list(kind).plans;
}

SharedPlan Shelf::find_cover(const LaneKind& kind, const RecordedStep& step) {
  const std::lock_guard guard(lock_);
  for (const SharedPlan& plan : list(kind).plans)
    if (plan->covers(step)) return plan;
  return nullptr;
}

void Shelf::add(const LaneKind& kind, SharedPlan plan, const AllocationPlan* replaced) {
  const std::lock_guard guard(lock_);
  std::vector<SharedPlan>& plans = list(kind).plans;
  std::erase_if(plans, [&](const SharedPlan& each) { return each.get() == replaced; });
  if (plans.size() >= static_cast<std::size_t>(options_.plans_per_role)) plans.erase(plans.begin());
  plans.push_back(std::move(plan));
  version_.fetch_add(1, std::memory_order_release);
}

void Shelf::make_plan(const PlanningJob& job) {
  if (find_cover(job.kind, job.step)) return;  // another lane of the role was faster
  SharedPlan previous;
  for (const SharedPlan& plan : plans(job.kind))
    if (same_structure(as_recorded(*plan), job.step)) previous = plan;
  const AllocationPlanOptions options{.alignment_bytes = alignment_bytes_,
                                      .growth_percent = options_.growth_percent};
  auto plan =
      std::make_shared<const AllocationPlan>(plan_allocations(job.step, options, previous.get()));
  plans_made_.fetch_add(1, std::memory_order_relaxed);
  add(job.kind, std::move(plan), previous.get());
}

void Shelf::submit(const LaneKind& kind, RecordedStep step) {
  if (!options_.plan_in_background) return make_plan({kind, std::move(step)});
  const std::lock_guard guard(jobs_lock_);
  jobs_open_.fetch_add(1, std::memory_order_release);
  jobs_.push_back({kind, std::move(step)});
  if (!planner_.joinable()) planner_ = std::thread([this] { run_planner(); });
  jobs_changed_.notify_all();
}

void Shelf::run_planner() {
  std::unique_lock guard(jobs_lock_);
  while (true) {
    jobs_changed_.wait(guard, [this] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    const PlanningJob job = std::move(jobs_.front());
    jobs_.pop_front();
    guard.unlock();
    try {
      make_plan(job);
    } catch (const std::exception& error) {
      // Without a plan the program goes on as it did; it is only slower.
      spdlog::warn("a step's allocations could not be planned: {}", error.what());
    }
    guard.lock();
    jobs_open_.fetch_sub(1, std::memory_order_release);
    jobs_changed_.notify_all();
  }
}

void Shelf::wait_for_planner() {
  std::unique_lock guard(jobs_lock_);
  jobs_changed_.wait(guard, [this] { return jobs_open_.load(std::memory_order_acquire) == 0; });
}

std::shared_ptr<Arena> Shelf::make_arena(std::int64_t bytes, device::Queue queue) {
  const std::lock_guard guard(lock_);
  std::size_t free_place = 0;
  while (free_place < kMostArenas && arenas_[free_place].load(std::memory_order_relaxed) != nullptr)
    ++free_place;
  if (free_place == kMostArenas)
    throw DeviceOutOfMemory("one more arena than planned allocation can hold",
                            {.requested_bytes = bytes});
  auto arena = std::make_shared<Arena>(upstream_, bytes, queue);
  all_arenas_.push_back(arena);
  arenas_[free_place].store(arena.get(), std::memory_order_release);
  if (free_place >= arenas_end_.load(std::memory_order_relaxed))
    arenas_end_.store(free_place + 1, std::memory_order_release);
  arena_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return arena;
}

void Shelf::retire_arena(Arena& arena) noexcept {
  const std::lock_guard guard(lock_);
  for (std::atomic<Arena*>& place : arenas_)
    if (place.load(std::memory_order_relaxed) == &arena)
      place.store(nullptr, std::memory_order_release);
  if (arena.release()) arena_bytes_.fetch_sub(arena.bytes(), std::memory_order_relaxed);
}

Arena* Shelf::find_arena(const void* pointer) const noexcept {
  const std::size_t end = arenas_end_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < end; ++i) {
    Arena* arena = arenas_[i].load(std::memory_order_acquire);
    if (arena != nullptr && arena->contains(pointer)) return arena;
  }
  return nullptr;
}

Lane* Shelf::take_lane(const LaneKind& kind) {
  const std::lock_guard guard(lock_);
  for (auto idle = idle_lanes_.begin(); idle != idle_lanes_.end(); ++idle) {
    if ((*idle)->kind() != kind) continue;
    Lane* lane = *idle;
    idle_lanes_.erase(idle);
    return lane;
  }
  idle_lanes_.reserve(lanes_.size() + 1);  // so that return_lane cannot fail
  return lanes_.emplace_back(std::make_unique<Lane>(*this, kind)).get();
}

void Shelf::return_lane(Lane* lane) noexcept {
  const std::lock_guard guard(lock_);
  idle_lanes_.push_back(lane);
}

}  // namespace plimsoll::exec::detail
