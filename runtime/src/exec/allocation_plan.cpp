// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/exec/allocation_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/base/interval.h"
#include "plimsoll/plan/layout.h"

namespace plimsoll::exec {
namespace {

// The address space with, at each byte, the slot painted last.
class Canvas {
 public:
  // Paints `range` and returns what showed there before, ascending, without repetition.
  std::vector<std::uint32_t> paint(Interval range, std::uint32_t slot) {
    std::set<std::uint32_t> seen;
    split(range.begin);
    split(range.end);
    auto piece = pieces_.lower_bound(range.begin);
    while (piece != pieces_.end() && piece->first < range.end) {
      seen.insert(piece->second.slot);
      piece = pieces_.erase(piece);
    }
    pieces_.emplace(range.begin, Piece{range.end, slot});
    return {seen.begin(), seen.end()};
  }

 private:
  struct Piece {
    std::int64_t end;
    std::uint32_t slot;
  };
  void split(std::int64_t at) {
    auto piece = pieces_.upper_bound(at);
    if (piece == pieces_.begin()) return;
    --piece;
    if (piece->first >= at || piece->second.end <= at) return;
    pieces_.emplace(at, piece->second);
    piece->second.end = at;
  }
  std::map<std::int64_t, Piece> pieces_;
};

void check_slot(const PlannedSlot& slot, std::size_t index, std::int64_t alignment) {
  const auto refuse = [&](const char* what, std::int64_t value) {
    throw InvalidArgument(
        fmt::format("slot {} of an allocation plan: {} is {}", index, what, value));
  };
  if (slot.capacity_bytes <= 0 || slot.capacity_bytes % alignment != 0)
    refuse("the capacity, which must be a positive multiple of the alignment,",
           slot.capacity_bytes);
  if (slot.minimum_bytes <= 0 || slot.minimum_bytes > slot.capacity_bytes)
    refuse("the least request, which must lie within the capacity,", slot.minimum_bytes);
  if (slot.escapes) return;
  if (slot.offset < 0 || slot.offset % alignment != 0)
    refuse("the offset, which must be a non-negative multiple of the alignment,", slot.offset);
  checked_add(slot.offset, slot.capacity_bytes);
}

// The pieces of [0, n) in which slot `index` of a step of n allocations lives.
std::vector<Interval> lifetime(std::int64_t death, std::int64_t index, std::int64_t n) {
  if (death <= n) return {{index, death}};
  return {{0, death - n}, {index, n}};
}

std::int64_t largest_load(const std::vector<PlannedSlot>& slots) {
  const auto n = static_cast<std::int64_t>(slots.size());
  std::vector<std::int64_t> change(slots.size() + 1, 0);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].escapes) continue;
    for (const Interval& piece : lifetime(slots[i].death, static_cast<std::int64_t>(i), n)) {
      change[static_cast<std::size_t>(piece.begin)] += slots[i].capacity_bytes;
      change[static_cast<std::size_t>(piece.end)] -= slots[i].capacity_bytes;
    }
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const std::int64_t step : change) peak = std::max(peak, live += step);
  return peak;
}

bool lifetimes_meet(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Interval& x) {
    return std::any_of(b.begin(), b.end(), [&](const Interval& y) { return x.overlaps(y); });
  });
}

// Gives each slot its offset. A slot that reaches into the next step lives from the step's begin to
// its end but for the gap between.
void place(std::vector<PlannedSlot>& slots, std::int64_t alignment) {
  const auto n = static_cast<std::int64_t>(slots.size());
  plan::LayoutProblem problem;
  std::vector<std::size_t> planned;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].escapes) continue;
    const auto begin = static_cast<std::int64_t>(i);
    plan::LayoutBuffer buffer;
    buffer.size_bytes = slots[i].capacity_bytes;
    buffer.alignment_bytes = alignment;
    buffer.lifetime = {begin, std::min(slots[i].death, n)};
    if (slots[i].death > n) {
      buffer.lifetime = {0, n};
      if (slots[i].death - n < begin) buffer.gaps.push_back({{slots[i].death - n, begin}, {}});
    }
    problem.buffers.push_back(std::move(buffer));
    planned.push_back(i);
  }
  // Programs wait for their plan: the search ends early, a slightly higher arena does no harm.
  plan::LayoutOptions options;
  options.node_limit = 50'000;
  options.greedy_limit = 20'000'000;
  options.local_limit = 100;
  const plan::LayoutResult layout = plan::solve_layout(problem, options);
  for (std::size_t i = 0; i < planned.size(); ++i)
    slots[planned[i]].offset = layout.offsets_bytes[i];
}

// Merges what was seen now into what the previous plan allows.
void widen(PlannedSlot& slot, const PlannedSlot& before, const AllocationPlanOptions& options) {
  const std::int64_t now = slot.capacity_bytes;
  if (now > before.capacity_bytes) {
    const std::int64_t room = now / 100 * options.growth_percent;
    slot.capacity_bytes = align_up(checked_add(now, room), options.alignment_bytes);
  } else {
    slot.capacity_bytes = before.capacity_bytes;
  }
  slot.minimum_bytes = std::min(slot.minimum_bytes, before.minimum_bytes);
  slot.escapes = slot.escapes || before.escapes;
  slot.death = slot.escapes ? kNeverFreed : std::max(slot.death, before.death);
}

}  // namespace

AllocationPlan::AllocationPlan(std::vector<PlannedSlot> slots, std::int64_t alignment_bytes)
    : slots_(std::move(slots)), alignment_bytes_(alignment_bytes) {
  if (slots_.size() >= std::numeric_limits<std::int32_t>::max())
    throw InvalidArgument(
        fmt::format("an allocation plan of {} slots: at most 2^31", slots_.size()));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const PlannedSlot& slot = slots_[i];
    check_slot(slot, i, alignment_bytes_);
    if (!slot.escapes) arena_bytes_ = std::max(arena_bytes_, slot.offset + slot.capacity_bytes);
  }
  load_bytes_ = largest_load(slots_);
  find_predecessors();
}

void AllocationPlan::find_predecessors() {
  Canvas canvas;
  // The step repeats: the first round leaves the picture that the second one starts from.
  for (int round = 0; round < 2; ++round) {
    predecessors_.clear();
    predecessor_begin_.assign(1, 0);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      const PlannedSlot& slot = slots_[i];
      if (!slot.escapes)
        for (const std::uint32_t below :
             canvas.paint({slot.offset, slot.offset + slot.capacity_bytes}, i))
          if (below != i) predecessors_.push_back(below);
      predecessor_begin_.push_back(static_cast<std::uint32_t>(predecessors_.size()));
    }
  }
}

bool AllocationPlan::begins_like(const AllocationPlan& other, std::size_t count) const {
  if (count > size() || count > other.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const PlannedSlot& a = slots_[i];
    const PlannedSlot& b = other.slots_[i];
    if (a.key != b.key || a.minimum_bytes > b.capacity_bytes || b.minimum_bytes > a.capacity_bytes)
      return false;
  }
  return true;
}

bool AllocationPlan::covers(const RecordedStep& step) const {
  if (step.blocks.size() != slots_.size()) return false;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const RecordedBlock& block = step.blocks[i];
    if (!accepts(i, block.bytes, block.key)) return false;
    if (!slots_[i].escapes && (step.escapes(i) || block.death > slots_[i].death)) return false;
  }
  return true;
}

AllocationPlan plan_allocations(const RecordedStep& step, const AllocationPlanOptions& options,
                                const AllocationPlan* previous) {
  if (previous != nullptr && previous->size() != step.blocks.size())
    throw InvalidArgument(fmt::format("a plan of {} slots cannot be widened by a step of {}",
                                      previous->size(), step.blocks.size()));
  std::vector<PlannedSlot> slots;
  slots.reserve(step.blocks.size());
  for (std::size_t i = 0; i < step.blocks.size(); ++i) {
    const RecordedBlock& block = step.blocks[i];
    PlannedSlot slot;
    slot.key = block.key;
    slot.capacity_bytes = align_up(block.bytes, options.alignment_bytes);
    // An unknown origin is told apart by size alone; a known one may ask for less.
    slot.minimum_bytes =
        block.key == 0 ? slot.capacity_bytes - options.alignment_bytes + 1 : std::int64_t{1};
    slot.escapes = step.escapes(i);
    // A block freed before the next allocation still lives at its own.
    slot.death =
        slot.escapes ? kNeverFreed : std::max(block.death, static_cast<std::int64_t>(i) + 1);
    if (previous != nullptr) widen(slot, previous->slots()[i], options);
    slots.push_back(slot);
  }
  place(slots, options.alignment_bytes);
  return AllocationPlan(std::move(slots), options.alignment_bytes);
}

std::vector<std::size_t> find_overlap(const AllocationPlan& plan) {
  const auto n = static_cast<std::int64_t>(plan.size());
  for (std::size_t a = 0; a < plan.size(); ++a) {
    for (std::size_t b = a + 1; b < plan.size(); ++b) {
      const PlannedSlot& x = plan.slots()[a];
      const PlannedSlot& y = plan.slots()[b];
      if (x.escapes || y.escapes) continue;
      const bool share =
          x.offset < y.offset + y.capacity_bytes && y.offset < x.offset + x.capacity_bytes;
      if (share && lifetimes_meet(lifetime(x.death, static_cast<std::int64_t>(a), n),
                                  lifetime(y.death, static_cast<std::int64_t>(b), n)))
        return {a, b};
    }
  }
  return {};
}

}  // namespace plimsoll::exec
