// SPDX-License-Identifier: Apache-2.0
#include "exec/plan_instance.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

namespace plimsoll::exec::detail {

Arena::OwnedTable::OwnedTable(int bits)
    : storage(std::make_unique<Place[]>(std::size_t{1} << bits)), table{storage.get(), 64 - bits} {}

void Arena::OwnedTable::add(std::uint64_t offset, Cell* cell) {
  const std::uint64_t mask = (std::uint64_t{1} << (64 - table.hash_shift)) - 1;
  std::uint64_t at = table.hash(offset);
  while (storage[at].tag.load(std::memory_order_relaxed) != 0) at = (at + 1) & mask;
  storage[at].cell.store(cell, std::memory_order_relaxed);
  storage[at].tag.store(offset + 1, std::memory_order_relaxed);
  ++used;
}

Arena::Arena(pool::MemoryResource& upstream, std::int64_t bytes, device::Queue queue)
    : upstream_(upstream), queue_(queue), bytes_(bytes) {
  grow(0);
  base_ = static_cast<std::byte*>(upstream.allocate(bytes, queue));
}

Arena::~Arena() { release(); }

bool Arena::release() noexcept {
  if (is_released_) return false;
  upstream_.deallocate(base_, bytes_, queue_);
  tables_.clear();
  is_released_ = true;
  return true;
}

Cell* Arena::cell_at(const void* pointer) const noexcept {
  const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(pointer) - base_);
  const Place* place = table_.load(std::memory_order_acquire)->table.find(offset);
  return place != nullptr ? place->cell.load(std::memory_order_relaxed) : nullptr;
}

// Makes a table that is at most a quarter full with so many places.
void Arena::grow(std::size_t places) {
  auto larger = std::make_unique<OwnedTable>(std::bit_width(4 * places | 31));
  if (!tables_.empty()) {
    const OwnedTable& present = *tables_.back();
    const std::size_t count = std::size_t{1} << (64 - present.table.hash_shift);
    for (std::size_t at = 0; at < count; ++at) {
      const std::uint64_t tag = present.storage[at].tag.load(std::memory_order_relaxed);
      if (tag != 0) larger->add(tag - 1, present.storage[at].cell.load(std::memory_order_relaxed));
    }
  }
  tables_.push_back(std::move(larger));
  table_.store(tables_.back().get(), std::memory_order_release);
}

void Arena::add_places(const AllocationPlan& plan) {
  std::set<std::int64_t> fresh;
  for (const PlannedSlot& slot : plan.slots())
    if (!slot.escapes && places().find(static_cast<std::uint64_t>(slot.offset)) == nullptr)
      fresh.insert(slot.offset);
  const OwnedTable& present = *tables_.back();
  const std::size_t wanted = present.used + fresh.size();
  if (4 * wanted > std::size_t{1} << (64 - present.table.hash_shift)) grow(wanted);
  for (const std::int64_t offset : fresh)
    tables_.back()->add(static_cast<std::uint64_t>(offset), nullptr);
}

PlanInstance::PlanInstance(std::shared_ptr<const AllocationPlan> plan, std::shared_ptr<Arena> arena)
    : plan_(std::move(plan)),
      arena_(std::move(arena)),
      cells_(std::make_unique<Cell[]>(plan_->size() + 1)),
      replay_slots_(std::make_unique<ReplaySlot[]>(plan_->size() + 1)),
      visited_(plan_->size() + 1, 0) {
  arena_->add_places(*plan_);
  bind();
}

void PlanInstance::bind() {
  const auto always_dead = static_cast<std::uint32_t>(plan_->size());
  for (std::uint32_t i = 0; i < plan_->size(); ++i) {
    const PlannedSlot& slot = plan_->slots()[i];
    if (slot.escapes) continue;  // accepts nothing here: the slow path knows
    ReplaySlot& replay = replay_slots_[i];
    replay.key = slot.key;
    replay.minimum_bytes = slot.minimum_bytes;
    replay.span_bytes = static_cast<std::uint64_t>(slot.capacity_bytes - slot.minimum_bytes);
    replay.address = arena_->base() + slot.offset;
    replay.owner = &arena_->places().find(static_cast<std::uint64_t>(slot.offset))->cell;
    replay.own = i;
    const auto below = plan_->predecessors(i);
    for (std::size_t p = 0; p < 3; ++p)
      replay.predecessors[p] = p < below.size() ? below[p] : always_dead;
    if (below.size() > 3) {
      replay.more_count = static_cast<std::uint32_t>(below.size() - 3);
      replay.more_begin = plan_->predecessors_begin(i) + 3;
    }
  }
}

bool PlanInstance::meets_foreign(std::uint32_t slot) const {
  if (foreign_.empty() || plan_->slots()[slot].escapes) return false;
  return std::any_of(foreign_.begin(), foreign_.end(), [&](const ForeignBlock& block) {
    return block.range.overlaps(range(slot)) &&
           block.cell->load(std::memory_order_acquire) != kDead;
  });
}

// Searches what stands behind a shadow. Cells that are dead end a path; a live one ends the search.
bool PlanInstance::resolve(std::uint32_t slot) {
  ++visit_;
  stack_.assign(1, slot);
  visited_[slot] = visit_;
  std::size_t next = 0;
  while (next < stack_.size()) {
    const std::uint32_t at = stack_[next++];
    if (meets_foreign(at)) return false;
    for (const std::uint32_t below : plan_->predecessors(at)) {
      const std::uint32_t state = cells_[below].load(std::memory_order_acquire);
      if (state == kDead || visited_[below] == visit_) continue;
      if (state != kShadow) return false;
      visited_[below] = visit_;
      stack_.push_back(below);
    }
  }
  for (const std::uint32_t seen : stack_) cells_[seen].store(kDead, std::memory_order_relaxed);
  return true;
}

bool PlanInstance::clear(std::uint32_t slot) {
  const std::uint32_t own = cells_[slot].load(std::memory_order_acquire);
  if (own == kShadow) {
    if (!resolve(slot)) return false;
  } else if (own != kDead) {
    return false;
  }
  for (const std::uint32_t below : plan_->predecessors(slot)) {
    const std::uint32_t state = cells_[below].load(std::memory_order_acquire);
    if (state == kDead) continue;
    if (state != kShadow || !resolve(below)) return false;
  }
  return true;
}

void PlanInstance::pass(std::uint32_t slot) {
  if (plan_->slots()[slot].escapes) return;
  const std::uint32_t own = cells_[slot].load(std::memory_order_acquire);
  if (own != kDead && own != kShadow) return;
  const auto below = plan_->predecessors(slot);
  const bool blocked =
      meets_foreign(slot) || std::any_of(below.begin(), below.end(), [&](std::uint32_t p) {
        return cells_[p].load(std::memory_order_acquire) != kDead;
      });
  cells_[slot].store(blocked ? kShadow : kDead, std::memory_order_relaxed);
}

void* PlanInstance::hand_out(std::uint32_t slot, std::uint32_t state) {
  const ReplaySlot& replay = replay_slots_[slot];
  cells_[slot].store(state, std::memory_order_relaxed);
  replay.owner->store(&cells_[slot], std::memory_order_relaxed);
  return replay.address;
}

bool PlanInstance::is_untouched(std::uint32_t slot, std::uint32_t cursor) const {
  for (std::uint32_t later = slot + 1; later < cursor; ++later)
    if (!plan_->slots()[later].escapes && range(later).overlaps(range(slot))) return false;
  return true;
}

void PlanInstance::enter(std::vector<ForeignBlock> foreign, std::uint32_t cursor) {
  foreign_ = std::move(foreign);
  if (!foreign_.empty()) {
    for (std::uint32_t slot = 0; slot < plan_->size(); ++slot)
      if (meets_foreign(slot) && cells_[slot].load(std::memory_order_acquire) == kDead)
        cells_[slot].store(kShadow, std::memory_order_relaxed);
  }
  for (std::uint32_t slot = 0; slot < cursor; ++slot) pass(slot);
}

void PlanInstance::forget_dead_foreign() {
  std::erase_if(foreign_, [](const ForeignBlock& block) {
    return block.cell->load(std::memory_order_acquire) == kDead;
  });
}

void PlanInstance::list_live(std::vector<ForeignBlock>& live) const {
  for (std::uint32_t slot = 0; slot < plan_->size(); ++slot) {
    const std::uint32_t state = cells_[slot].load(std::memory_order_acquire);
    if (state != kDead && state != kShadow) live.push_back({range(slot), &cells_[slot]});
  }
}

bool PlanInstance::any_live() const {
  for (std::uint32_t slot = 0; slot < plan_->size(); ++slot) {
    const std::uint32_t state = cells_[slot].load(std::memory_order_acquire);
    if (state != kDead && state != kShadow) return true;
  }
  return false;
}

}  // namespace plimsoll::exec::detail
