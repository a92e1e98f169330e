// SPDX-License-Identifier: Apache-2.0
#include "exec/plan_instance.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace plimsoll::exec::detail {

Arena::Arena(pool::MemoryResource& upstream, std::int64_t bytes, device::Queue queue)
    : upstream_(upstream), queue_(queue), bytes_(bytes) {
  const auto alignment = static_cast<std::uint64_t>(upstream.alignment_bytes());
  shift_ = std::countr_zero(alignment);
  // calloc hands out untouched pages: only places where blocks begin will cost memory.
  owners_ = static_cast<Cell**>(
      std::calloc(static_cast<std::size_t>(bytes >> shift_) + 1, sizeof(Cell*)));
  if (owners_ == nullptr) throw std::bad_alloc();
  try {
    base_ = static_cast<std::byte*>(upstream.allocate(bytes, queue));
  } catch (...) {
    std::free(owners_);
    throw;
  }
}

Arena::~Arena() { release(); }

bool Arena::release() noexcept {
  if (owners_ == nullptr) return false;
  upstream_.deallocate(base_, bytes_, queue_);
  std::free(owners_);
  owners_ = nullptr;
  return true;
}

PlanInstance::PlanInstance(std::shared_ptr<const AllocationPlan> plan, std::shared_ptr<Arena> arena)
    : plan_(std::move(plan)),
      arena_(std::move(arena)),
      cells_(std::make_unique<Cell[]>(plan_->size() + 1)),
      visited_(plan_->size() + 1, 0) {}

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
  const std::int64_t offset = plan_->slots()[slot].offset;
  cells_[slot].store(state, std::memory_order_relaxed);
  arena_->owner(offset).store(&cells_[slot], std::memory_order_relaxed);
  return arena_->base() + offset;
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
