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
using detail::Shelf;

// A thread's lanes in one engine. Holding the shelf lets a thread outlive the engine.
struct LaneSet {
  std::shared_ptr<Shelf> shelf;
  std::array<Lane*, device::kQueueCount> lanes{};
};

// Gives a thread's lanes back when it ends.
struct ThreadLanes {
  std::vector<LaneSet> sets;
  ~ThreadLanes() {
    for (LaneSet& set : sets)
      for (Lane* lane : set.lanes)
        if (lane != nullptr) set.shelf->return_lane(lane);
  }
};

// The engine this thread asked last, so that the hit path finds its lane in two loads.
struct LaneCache {
  std::uint64_t serial = 0;
  std::array<Lane*, device::kQueueCount> lanes{};
};

constinit thread_local LaneCache t_cache;
constinit thread_local std::uint32_t t_role = 0;
thread_local ThreadLanes t_lanes;

LaneSet* find_set(const Shelf& shelf) {
  for (LaneSet& set : t_lanes.sets)
    if (set.shelf.get() == &shelf) return &set;
  return nullptr;
}

[[gnu::noinline]] void fill_cache(const Shelf& shelf) {
  const LaneSet* set = find_set(shelf);
  t_cache.lanes = set != nullptr ? set->lanes : std::array<Lane*, device::kQueueCount>{};
  t_cache.serial = shelf.serial();
}

inline Lane* this_threads_lane(const Shelf& shelf, device::Queue queue) {
  if (t_cache.serial != shelf.serial()) [[unlikely]]
    fill_cache(shelf);
  return t_cache.lanes[static_cast<std::size_t>(queue)];
}

inline const Arena* arena_of(const Shelf& shelf, const void* pointer) noexcept {
  if (t_cache.serial == shelf.serial()) [[likely]] {
    const Lane* lane = t_cache.lanes[0];
    if (lane != nullptr && lane->contains(pointer)) [[likely]]
      return &lane->arena();
  }
  return shelf.find_arena(pointer);
}

inline Cell* cell_of(const Arena& arena, const void* pointer) noexcept {
  const std::int64_t offset = static_cast<const std::byte*>(pointer) - arena.base();
  return arena.owner(offset).load(std::memory_order_relaxed);
}

}  // namespace

ReplayEngine::ReplayEngine(pool::MemoryResource& upstream, const ReplayOptions& options)
    : shelf_(std::make_shared<Shelf>(upstream, options)) {}

ReplayEngine::~ReplayEngine() { shelf_->close(); }

void* ReplayEngine::try_allocate(std::int64_t bytes, AllocationKey key, device::Queue queue) {
  Lane* lane = this_threads_lane(*shelf_, queue);
  return lane != nullptr ? lane->allocate(bytes, key) : nullptr;
}

void ReplayEngine::note(const void* pointer, std::int64_t bytes, AllocationKey key,
                        device::Queue queue) {
  Lane* lane = this_threads_lane(*shelf_, queue);
  if (lane != nullptr) lane->note(pointer, bytes, key);
}

bool ReplayEngine::try_deallocate(const void* pointer) noexcept {
  const Arena* arena = arena_of(*shelf_, pointer);
  if (arena == nullptr) {
    if (!shelf_->ledger().is_empty()) shelf_->ledger().note_free(pointer);
    return false;
  }
  Cell* cell = cell_of(*arena, pointer);
  if (cell->load(std::memory_order_relaxed) == detail::kLiveNoted) [[unlikely]]
    shelf_->ledger().note_free(pointer);
  // Release: whoever is given these bytes next sees this thread done with them.
  cell->store(detail::kDead, std::memory_order_release);
  return true;
}

bool ReplayEngine::begin_free(const void* pointer) noexcept {
  const Arena* arena = arena_of(*shelf_, pointer);
  if (arena == nullptr) return false;
  Cell* cell = cell_of(*arena, pointer);
  if (cell->load(std::memory_order_relaxed) == detail::kLiveNoted)
    shelf_->ledger().note_free(pointer);
  cell->store(detail::kPending, std::memory_order_relaxed);
  return true;
}

void ReplayEngine::complete_free(const void* pointer) noexcept {
  const Arena* arena = arena_of(*shelf_, pointer);
  if (arena != nullptr) cell_of(*arena, pointer)->store(detail::kDead, std::memory_order_release);
}

bool ReplayEngine::owns(const void* pointer) const noexcept {
  return arena_of(*shelf_, pointer) != nullptr;
}

device::Queue ReplayEngine::queue_of(const void* pointer) const noexcept {
  return arena_of(*shelf_, pointer)->queue();
}

void ReplayEngine::step_mark() {
  LaneSet* set = find_set(*shelf_);
  if (set == nullptr) {
    std::erase_if(t_lanes.sets, [](const LaneSet& each) { return each.shelf->is_closed(); });
    LaneSet fresh{shelf_, {}};
    t_lanes.sets.push_back(fresh);
    set = &t_lanes.sets.back();
    for (int queue = 0; queue < device::kQueueCount; ++queue)
      set->lanes[static_cast<std::size_t>(queue)] =
          shelf_->take_lane({t_role, static_cast<device::Queue>(queue)});
    fill_cache(*shelf_);
  }
  for (Lane* lane : set->lanes) lane->step_mark();
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

ReplayStatistics ReplayEngine::statistics() const {
  const detail::Totals& totals = shelf_->totals();
  const auto get = [](const std::atomic<std::int64_t>& total) {
    return total.load(std::memory_order_relaxed);
  };
  return {.steps = get(totals.steps),
          .planned = get(totals.planned),
          .escaped = get(totals.escaped),
          .missed = get(totals.missed),
          .refused = get(totals.refused),
          .skipped = get(totals.skipped),
          .detached = get(totals.detached),
          .plans_made = get(totals.plans_made),
          .arena_bytes = get(totals.arena_bytes)};
}

}  // namespace plimsoll::exec
