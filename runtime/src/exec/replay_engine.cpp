// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/exec/replay_engine.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

#include "exec/lane.h"
#include "exec/shelf.h"

namespace plimsoll::exec {
namespace {

using detail::Arena;
using detail::Cell;
using detail::Lane;
using detail::LaneFront;
using detail::Shelf;

// A thread's lanes in one engine. Holding the shelf lets a thread outlive the engine.
struct LaneSet {
  std::shared_ptr<Shelf> shelf;
  std::array<Lane*, device::kQueueCount> lanes{};
};

constinit thread_local std::uint32_t t_role = 0;
constinit thread_local bool t_has_ended = false;  // its lanes may be another thread's already

// Gives a thread's lanes back when it ends. What the thread still frees then goes the long way.
struct ThreadLanes {
  ThreadLanes() = default;
  ThreadLanes(const ThreadLanes&) = delete;
  ThreadLanes& operator=(const ThreadLanes&) = delete;
  ~ThreadLanes() {
    t_has_ended = true;
    detail::t_fronts.serial = 0;
    for (LaneSet& set : sets)
      for (Lane* lane : set.lanes)
        if (lane != nullptr) set.shelf->return_lane(lane);
  }

  std::vector<LaneSet> sets;
};
thread_local ThreadLanes t_lanes;

LaneSet* find_set(const Shelf& shelf) {
  if (t_has_ended) return nullptr;
  for (LaneSet& set : t_lanes.sets)
    if (set.shelf.get() == &shelf) return &set;
  return nullptr;
}

constexpr auto kCompute = static_cast<std::size_t>(device::Queue::kCompute);
constinit LaneFront g_no_lane;  // of a thread without lanes: accepts nothing, holds nothing

// Makes the engine the one whose lanes the calling thread finds at once.
void enter(const Shelf& shelf) {
  const LaneSet* set = find_set(shelf);
  for (std::size_t queue = 0; queue < device::kQueueCount; ++queue) {
    Lane* lane = set != nullptr ? set->lanes[queue] : nullptr;
    detail::t_fronts.lanes[queue] = lane != nullptr ? lane->front() : &g_no_lane;
  }
  detail::t_fronts.serial = shelf.serial();
}

// Null for a thread that marks no steps. A thread that does gets its lane for a queue with the
// first request on it.
Lane* this_threads_lane(Shelf& shelf, device::Queue queue) {
  if (detail::t_fronts.serial != shelf.serial()) enter(shelf);
  const auto index = static_cast<std::size_t>(queue);
  Lane* lane = detail::t_fronts.lanes[index]->lane;
  if (lane != nullptr || detail::t_fronts.lanes[kCompute]->lane == nullptr) return lane;
  lane = find_set(shelf)->lanes[index] = shelf.take_lane({t_role, queue});
  enter(shelf);
  return lane;
}

}  // namespace

constinit thread_local detail::ThreadFronts detail::t_fronts;

ReplayEngine::ReplayEngine(pool::MemoryResource& upstream, const ReplayOptions& options)
    : shelf_(std::make_shared<Shelf>(upstream, options)), serial_(shelf_->serial()) {}

ReplayEngine::~ReplayEngine() { shelf_->close(); }

void* ReplayEngine::try_allocate_slowly(std::int64_t bytes, AllocationKey key,
                                        device::Queue queue) {
  Lane* lane = this_threads_lane(*shelf_, queue);
  return lane != nullptr ? lane->allocate(bytes, key) : nullptr;
}

void ReplayEngine::note(const void* pointer, std::int64_t bytes, AllocationKey key,
                        device::Queue queue) {
  Lane* lane = this_threads_lane(*shelf_, queue);
  if (lane != nullptr) lane->note(pointer, bytes, key);
}

bool ReplayEngine::try_deallocate_slowly(const void* pointer) noexcept {
  const Arena* arena = shelf_->find_arena(pointer);
  if (arena == nullptr) {
    if (!shelf_->ledger().is_empty()) shelf_->ledger().note_free(pointer);
    return false;
  }
  Cell* cell = arena->cell_at(pointer);
  if (cell->load(std::memory_order_relaxed) == detail::kLiveNoted)
    shelf_->ledger().note_free(pointer);
  // Release: whoever is given these bytes next sees this thread done with them.
  cell->store(detail::kDead, std::memory_order_release);
  return true;
}

bool ReplayEngine::begin_free(const void* pointer) noexcept {
  const Arena* arena = shelf_->find_arena(pointer);
  if (arena == nullptr) return false;
  Cell* cell = arena->cell_at(pointer);
  if (cell->load(std::memory_order_relaxed) == detail::kLiveNoted)
    shelf_->ledger().note_free(pointer);
  cell->store(detail::kPending, std::memory_order_relaxed);
  return true;
}

void ReplayEngine::complete_free(const void* pointer) noexcept {
  const Arena* arena = shelf_->find_arena(pointer);
  if (arena != nullptr) arena->cell_at(pointer)->store(detail::kDead, std::memory_order_release);
}

bool ReplayEngine::owns(const void* pointer) const noexcept {
  return shelf_->find_arena(pointer) != nullptr;
}

device::Queue ReplayEngine::queue_of(const void* pointer) const noexcept {
  return shelf_->find_arena(pointer)->queue();
}

void ReplayEngine::step_mark() {
  if (detail::t_fronts.serial != serial_ || detail::t_fronts.lanes[kCompute]->lane == nullptr)
      [[unlikely]]
    find_lanes();
  for (const LaneFront* front : detail::t_fronts.lanes)
    if (front->lane != nullptr) front->lane->step_mark();
}

// Gives the calling thread its lanes, unless it is about to end.
void ReplayEngine::find_lanes() {
  if (!t_has_ended && find_set(*shelf_) == nullptr) {
    std::erase_if(t_lanes.sets, [](const LaneSet& each) { return each.shelf->is_closed(); });
    LaneSet& fresh = t_lanes.sets.emplace_back(LaneSet{shelf_, {}});
    fresh.lanes[kCompute] = shelf_->take_lane({t_role, device::Queue::kCompute});
  }
  enter(*shelf_);
}

void ReplayEngine::set_thread_role(std::uint32_t role) noexcept { t_role = role; }

void ReplayEngine::adopt(std::shared_ptr<const AllocationPlan> plan, std::uint32_t role,
                         device::Queue queue) {
  if (plan->alignment_bytes() % shelf_->alignment_bytes() != 0)
    throw InvalidArgument(fmt::format(
        "a plan aligned to {} bytes cannot be used: the memory under it is aligned to {}",
        plan->alignment_bytes(), shelf_->alignment_bytes()));
  shelf_->add({role, queue}, std::move(plan), nullptr);
}

void ReplayEngine::wait_for_planner() { shelf_->wait_for_planner(); }

ReplayStatistics ReplayEngine::statistics() const { return shelf_->statistics(); }

}  // namespace plimsoll::exec
