// SPDX-License-Identifier: Apache-2.0
// How room is made: free holes first, then what finished copies free, then a compaction plan.
#include <algorithm>
#include <cmath>
#include <limits>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/size.h"

#include "pool/tensor_pool_state.h"

namespace plimsoll::pool {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Slides are priced by a straight line; this is the piece it is measured at.
constexpr std::int64_t kSlideSampleBytes = mib(1);

}  // namespace

class TensorPool::State::Holding {
 public:
  Holding(State& state, std::span<const BlockId> ids) : state_(state), ids_(ids) { set(true); }
  ~Holding() { set(false); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

 private:
  void set(bool is_held) noexcept {
    for (const BlockId id : ids_) state_.blocks_[id.index()].is_held = is_held;
  }
  State& state_;
  std::span<const BlockId> ids_;
};

void TensorPool::State::throw_out_of_memory(std::int64_t bytes, const char* what) const {
  const PoolStatistics figures = stats();
  throw DeviceOutOfMemory(
      fmt::format("{}: {} are asked of a budget of {}, of which {} are pinned", what,
                  format_size(bytes), format_size(options_.budget_bytes),
                  format_size(figures.pinned_bytes)),
      {bytes, figures.live_bytes, figures.budget_bytes, figures.largest_free_bytes});
}

std::optional<SegmentId> TensorPool::State::try_range(std::int64_t bytes) {
  if (bytes > usable_bytes()) return std::nullopt;
  return arena_.allocate(bytes);
}

bool TensorPool::State::has_hole(std::int64_t bytes) const noexcept {
  return bytes <= usable_bytes() && bytes <= arena_.largest_free_bytes();
}

SegmentId TensorPool::State::make_range(std::int64_t bytes) {
  if (const auto segment = try_range(bytes)) return *segment;
  poll();
  std::optional<HostOutOfMemory> host_full;
  for (;;) {
    if (const auto segment = try_range(bytes)) return *segment;
    if (!improve(bytes, bytes, host_full)) throw_out_of_memory(bytes, "no room on the device");
  }
}

void TensorPool::State::make_hole(std::int64_t bytes) {
  if (has_hole(bytes)) return;
  poll();
  std::optional<HostOutOfMemory> host_full;
  while (!has_hole(bytes))
    if (!improve(bytes, bytes, host_full)) throw_out_of_memory(bytes, "no room on the device");
}

// Plans and carries out one round of evictions and slides towards a hole and a number of bytes that
// the budget leaves; false where no plan exists. Rounds repeat
// only where one met a full host tier (then once more, leaving blocks that need it where they are)
// or a queued copy that turned out to have failed, of which there are fewer each time.
bool TensorPool::State::improve(std::int64_t hole_bytes, std::int64_t usable,
                                std::optional<HostOutOfMemory>& host_full) {
  const Layout layout = describe(!host_full.has_value());
  CompactionRequest request;
  request.hole_bytes = hole_bytes;
  request.evict_bytes = std::max<std::int64_t>(0, usable - usable_bytes());
  request.slide_cost_per_byte =
      policy_.slide_cost(kSlideSampleBytes) / static_cast<double>(kSlideSampleBytes);
  const CompactionPlan plan = plan_compaction(layout.items, request);
  if (!plan.is_feasible) {
    if (host_full.has_value()) throw *host_full;
    return false;
  }
  try {
    execute(plan, layout);
  } catch (const HostOutOfMemory& full) {
    if (host_full.has_value()) throw;
    host_full = full;
  }
  return true;
}

TensorPool::State::Layout TensorPool::State::describe(bool may_write_below) const {
  Layout layout;
  layout.items.reserve(static_cast<std::size_t>(arena_.segment_count()));
  layout.blocks.reserve(static_cast<std::size_t>(arena_.segment_count()));
  for (SegmentId segment = arena_.first(); segment.valid(); segment = arena_.next(segment)) {
    const BlockId id(arena_.tag(segment));
    layout.items.push_back(arena_.is_free(segment) ? CompactionItem{CompactionItem::Kind::kFree,
                                                                    arena_.bytes(segment), 0}
                                                   : describe_block(id, may_write_below));
    layout.blocks.push_back(id);
  }
  return layout;
}

// 1. pinned or unbound: stays. 2. On its way out or doomed: costs nothing but the wait. 3. An
// operand of the acquire() that runs: may be slid only. 4. It would have to be written below and
// there is no room: the same. 5. Anything else has the policy's price.
CompactionItem TensorPool::State::describe_block(BlockId id, bool may_write_below) const {
  const Block& block = blocks_[id.index()];
  CompactionItem item{CompactionItem::Kind::kMovable, block.range_bytes, 0};
  if (is_immovable(block)) {
    item.kind = CompactionItem::Kind::kFixed;
  } else if (block.is_doomed || block.residence == Residence::kMovingOut) {
    item.eviction_cost = 0;
  } else if (block.is_held || (!may_write_below && !has_copy(block))) {
    item.eviction_cost = kInfinity;
  } else {
    const double cost = policy_.eviction_cost(id);
    item.eviction_cost = cost > 0 ? cost : 0;  // also where it is not a number
  }
  return item;
}

void TensorPool::State::execute(const CompactionPlan& plan, const Layout& layout) {
  const auto block_of = [&](std::int32_t item) {
    return layout.blocks[static_cast<std::size_t>(item)];
  };
  const auto settle = [&](BlockId id) {
    const Block& block = blocks_[id.index()];
    if (block.moving_index >= 0) finish_move(id);
    return block.is_alive && block.residence == Residence::kResident;
  };
  for (const std::int32_t item : plan.victims)
    if (settle(block_of(item))) evict_now(block_of(item));
  for (const CompactionSlide& slide : plan.slides)
    if (settle(block_of(slide.item))) slide_to(block_of(slide.item), slide.offset);
}

SegmentId TensorPool::State::free_segment_with(std::int64_t offset) const {
  const SegmentId segment = arena_.at_offset(offset);
  PLIMSOLL_CHECK(arena_.is_free(segment), "a slide's target is not free");
  return segment;
}

// --- Operators ----------------------------------------------------------------------------------

bool TensorPool::State::fast_acquire(std::span<const BlockId> ids, const Room& room) {
  for (const BlockId id : ids)
    if (at(id).residence != Residence::kResident) return false;
  if (room.pack || !has_hole(align_up(room.bytes, arena_.alignment()))) return false;
  is_packed_ = false;
  for (const BlockId id : ids) pin(id);
  return true;
}

void TensorPool::State::acquire(std::span<const BlockId> ids, const Room& room) {
  if (room.bytes < 0 || room.largest_bytes < 0)
    throw InvalidArgument(
        fmt::format("room for {} bytes", std::min(room.bytes, room.largest_bytes)));
  if (fast_acquire(ids, room)) return;
  check_fits(ids, room);
  {
    const Holding holding(*this, ids);
    settle_held(ids);
    fetch_missing(ids);
    if (room.pack) pack(ids);
    make_room(room, ids);
  }
  is_packed_ = room.pack;
  for (const BlockId id : ids) pin(id);
}

// What is live beside an operator with these operands when all that may go is out.
std::int64_t TensorPool::State::bytes_staying(std::span<const BlockId> ids) const {
  std::vector<BlockId> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::int64_t bytes = immovable_bytes_ + foreign_bytes_;
  for (const BlockId id : distinct)
    if (!is_immovable(at(id))) bytes = checked_add(bytes, at(id).range_bytes);
  return bytes;
}

// What cannot fit even with everything else out is refused before anything moves.
void TensorPool::State::check_fits(std::span<const BlockId> ids, const Room& room) const {
  std::int64_t needed = bytes_staying(ids);
  if (!room.is_guess) needed = checked_add(needed, align_up(room.bytes, arena_.alignment()));
  if (needed > options_.budget_bytes)
    throw_out_of_memory(needed, "the operands, the results and what is pinned do not fit together");
}

// Ends copies of the operands: one that was on its way out stays, with a valid copy below.
void TensorPool::State::settle_held(std::span<const BlockId> ids) noexcept {
  for (const BlockId id : ids) {
    Block& block = blocks_[id.index()];
    if (block.residence == Residence::kMovingIn) finish_move(id);
    if (block.residence != Residence::kMovingOut) continue;
    const bool arrived = copy_arrived(block);
    if (is_ahead_) block.written_below = block.pending;
    stop_moving(id);
    block.residence = Residence::kResident;
    note_use(block);  // compute has waited for the copy
    if (arrived) {
      totals_.offloaded_bytes += block.bytes;
      link_clean(id);
    } else {
      drop_copy(id);
    }
  }
}

// Largest first: a large one has the fewest places to go.
void TensorPool::State::fetch_missing(std::span<const BlockId> ids) {
  std::vector<BlockId> missing;
  for (const BlockId id : ids)
    if (at(id).residence != Residence::kResident) missing.push_back(id);
  std::sort(missing.begin(), missing.end(), [&](BlockId a, BlockId b) {
    const std::int64_t left = at(a).range_bytes;
    const std::int64_t right = at(b).range_bytes;
    return left != right ? left > right : a < b;
  });
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  for (const BlockId id : missing) fetch_now(id);
}

void TensorPool::State::make_room(const Room& room, std::span<const BlockId> ids) {
  const std::int64_t bytes = align_up(room.bytes, arena_.alignment());
  if (!room.is_guess) return make_hole(bytes);
  // A guess is met whole, or else for the largest allocation, or else not: the operator may still
  // need less.
  const std::int64_t most = options_.budget_bytes - bytes_staying(ids);
  for (const std::int64_t part : {bytes, align_up(room.largest_bytes, arena_.alignment())}) {
    try {
      return make_hole(std::min(part, most));
    } catch (const DeviceOutOfMemory&) {
      continue;
    } catch (const HostOutOfMemory&) {
      continue;
    }
  }
}

void TensorPool::State::reserve_foreign(std::int64_t bytes) {
  if (bytes < 0) throw InvalidArgument(fmt::format("{} foreign bytes", bytes));
  if (bytes > options_.budget_bytes - immovable_bytes_ - foreign_bytes_)
    throw_out_of_memory(bytes, "memory outside of the arena does not fit beside what is pinned");
  poll();
  std::optional<HostOutOfMemory> host_full;
  while (bytes > usable_bytes()) {
    if (!improve(0, bytes, host_full))
      throw_out_of_memory(bytes, "memory outside of the arena does not fit");
  }
  foreign_bytes_ += bytes;
  if (live_bytes() > peak_bytes_) note_peak();
}

}  // namespace plimsoll::pool
