// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/tensor_pool.h"

#include <algorithm>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"

#include "pool/tensor_pool_state.h"

namespace plimsoll::pool {

TensorPool::State::State(device::Device& device, HostTier& host, EvictionPolicy& policy,
                         const TensorPoolOptions& options)
    : device_(device),
      host_(host),
      policy_(policy),
      options_(options),
      is_ahead_(!device.info().is_compute_synchronous),
      arena_(std::max<std::int64_t>(options.budget_bytes, 0), device.info().alignment_bytes) {
  if (options.budget_bytes <= 0)
    throw InvalidArgument(
        fmt::format("a budget of {} bytes; more than 0 needed", options.budget_bytes));
  base_ = static_cast<std::byte*>(device.reserve(options.budget_bytes));
}

TensorPool::State::~State() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (!block.is_alive) continue;
    // Owners need not live any more.
    if (!is_immovable(block) && block.residence == Residence::kResident) add_immovable(BlockId(i));
    block.owner = nullptr;
    deallocate(BlockId(i));
  }
  // The host waits only where the device does not free in the order of its queues.
  while (!moving_.empty()) finish_move(moving_.back());
  if (staging_ != nullptr) device_.free_host(staging_, kStagingBytes);
  device_.release();
}

// --- Slots and ranges ---------------------------------------------------------------------------

BlockId TensorPool::State::take_slot() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    unused_.reserve(blocks_.capacity());  // so that giving slots back cannot fail
    moving_.reserve(blocks_.capacity());
    index_.reserve(blocks_.capacity());  // every block may come to stand in it
    immovable_.reserve(blocks_.capacity());
    unused_.push_back(BlockId(blocks_.size() - 1));
  }
  const BlockId id = unused_.back();
  unused_.pop_back();
  Block& block = blocks_[id.index()];
  block = Block{};
  block.is_alive = true;
  return id;
}

void TensorPool::State::give_slot(BlockId id) noexcept {
  blocks_[id.index()].is_alive = false;
  unused_.push_back(id);
}

const Block& TensorPool::State::at(BlockId id) const {
  if (!id.valid() || id.index() >= blocks_.size() || !blocks_[id.index()].is_alive ||
      blocks_[id.index()].is_doomed) [[unlikely]]
    throw InvalidArgument(fmt::format("the pool has no block {}", id.value()));
  return blocks_[id.index()];
}

Block& TensorPool::State::at(BlockId id) {
  return const_cast<Block&>(static_cast<const State*>(this)->at(id));
}

void* TensorPool::State::address(const Block& block) const noexcept {
  if (block.residence != Residence::kResident && block.residence != Residence::kMovingOut)
    return nullptr;
  return base_ + arena_.offset(block.segment);
}

std::vector<BlockId>::iterator TensorPool::State::immovable_place(BlockId id) noexcept {
  const auto offset = [&](BlockId block) { return arena_.offset(blocks_[block.index()].segment); };
  return std::lower_bound(immovable_.begin(), immovable_.end(), offset(id),
                          [&](BlockId block, std::int64_t value) { return offset(block) < value; });
}

// Its offset cannot change until it is removed again.
void TensorPool::State::add_immovable(BlockId id) noexcept {
  immovable_bytes_ += blocks_[id.index()].range_bytes;
  immovable_.insert(immovable_place(id), id);
}

void TensorPool::State::remove_immovable(BlockId id) noexcept {
  immovable_bytes_ -= blocks_[id.index()].range_bytes;
  immovable_.erase(immovable_place(id));
}

void TensorPool::State::give_range(BlockId id, SegmentId segment) noexcept {
  Block& block = blocks_[id.index()];
  block.segment = segment;
  arena_.set_tag(segment, id.value());
  requested_bytes_ += block.bytes;
  if (live_bytes() > peak_bytes_) note_peak();
}

void TensorPool::State::note_peak() noexcept {
  peak_bytes_ = live_bytes();
  peak_waste_bytes_ = arena_.used_bytes() - requested_bytes_;
}

void TensorPool::State::show_address(BlockId id) noexcept {
  index_.insert(arena_.offset(blocks_[id.index()].segment), id.value());
}

// Frees the range of a block; the caller has taken care of its place in index_, if it had one.
void TensorPool::State::drop_range(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  requested_bytes_ -= block.bytes;
  const std::int64_t offset = arena_.offset(block.segment);
  note_free({offset, offset + block.range_bytes},
            block.used.ticket > all_used_.ticket ? block.used : all_used_);
  arena_.deallocate(block.segment);
  block.segment = SegmentId();
  poison(offset, block.range_bytes);
}

void TensorPool::State::poison(std::int64_t offset, std::int64_t bytes) noexcept {
  if (!options_.poison || bytes <= 0) return;
  try {
    wait_for_range({offset, offset + bytes}, device::Queue::kCompute);
    device_.fill(base_ + offset, bytes, options_.poison_pattern);
    note_free({offset, offset + bytes}, device_.compute_mark());
  } catch (const std::exception&) {
    ++totals_.failed_copies;
  }
}

// --- Life ---------------------------------------------------------------------------------------

// Makes an unbound block in the range that `take_range(range bytes)` gives; no id where it gives
// none.
template <typename TakeRange>
BlockId TensorPool::State::allocate_with(std::int64_t bytes, const TakeRange& take_range) {
  if (bytes <= 0)
    throw InvalidArgument(fmt::format("a block of {} bytes; more than 0 needed", bytes));
  const std::int64_t range_bytes = align_up(bytes, arena_.alignment());
  const BlockId id = take_slot();
  try {
    const std::optional<SegmentId> segment = take_range(range_bytes);
    if (!segment) {
      give_slot(id);
      return {};
    }
    try {
      wait_for_range(range_of(*segment), device::Queue::kCompute);
    } catch (...) {
      arena_.deallocate(*segment);
      throw;
    }
    Block& block = blocks_[id.index()];
    block.bytes = bytes;
    block.range_bytes = range_bytes;
    give_range(id, *segment);
    show_address(id);
  } catch (...) {
    give_slot(id);
    throw;
  }
  add_immovable(id);
  ++totals_.allocations;
  ++totals_.blocks;
  return id;
}

BlockId TensorPool::State::allocate(std::int64_t bytes) {
  return allocate_with(bytes, [&](std::int64_t range_bytes) {
    std::optional<SegmentId> segment;
    if (is_packed_) segment = range_at_edge(range_bytes);
    return segment ? segment : make_range(range_bytes);
  });
}

BlockId TensorPool::State::allocate_at(void* address, std::int64_t bytes) {
  const std::int64_t offset = static_cast<std::byte*>(address) - base_;
  const Interval wanted{offset, offset + align_up(bytes, arena_.alignment())};
  return allocate_with(bytes, [&](std::int64_t range_bytes) -> std::optional<SegmentId> {
    if (range_bytes > usable_bytes()) return std::nullopt;
    const SegmentId segment = arena_.at_offset(wanted.begin);
    if (!arena_.is_free(segment) || !range_of(segment).contains(wanted)) return std::nullopt;
    return arena_.allocate_at(segment, wanted.begin, range_bytes);
  });
}

void TensorPool::State::deallocate(BlockId id) noexcept {
  if (!id.valid() || id.index() >= blocks_.size()) return;
  Block& block = blocks_[id.index()];
  if (!block.is_alive || block.is_doomed) return;
  --totals_.blocks;
  if (is_immovable(block)) remove_immovable(id);
  // Whoever ends it may have given the device work on it that we do not know of.
  note_use(block);
  block.pins = 0;
  switch (block.residence) {
    case Residence::kMovingOut:
      index_.erase(arena_.offset(block.segment));
      [[fallthrough]];
    case Residence::kMovingIn:
      block.is_doomed = true;
      if (device_.done(block.pending)) finish_move(id);
      return;
    case Residence::kResident:
      index_.erase(arena_.offset(block.segment));
      break;
    case Residence::kHost:
    case Residence::kFile:
      break;
  }
  end_block(id);
}

// Frees whatever the block has and its slot. Its address is not in index_ any more.
void TensorPool::State::end_block(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  if (has_copy(block)) {
    if (block.residence == Residence::kResident) unlink_clean(id);
    drop_copy(id);
  }
  if (block.segment.valid()) drop_range(id);
  give_slot(id);
}

void TensorPool::State::bind(BlockId id, BlockOwner* owner) {
  Block& block = at(id);
  if (owner == nullptr)
    throw InvalidArgument(fmt::format("block {}: binding to no owner", id.value()));
  if (block.owner != nullptr)
    throw InvalidArgument(fmt::format("block {} is bound already", id.value()));
  if (block.pins == 0) remove_immovable(id);
  note_write(block);
  block.owner = owner;
}

void TensorPool::State::unbind(BlockId id) {
  Block& block = at(id);
  if (block.residence != Residence::kResident)
    throw InvalidArgument(fmt::format("block {}: unbinding needs it resident", id.value()));
  if (block.owner == nullptr) return;
  if (block.pins == 0) add_immovable(id);
  block.owner = nullptr;
}

void TensorPool::State::pin(BlockId id) {
  Block& block = at(id);
  if (block.residence != Residence::kResident)
    throw InvalidArgument(fmt::format("block {}: pinning needs it resident", id.value()));
  if (block.pins == 0 && block.owner != nullptr) add_immovable(id);
  ++block.pins;
}

void TensorPool::State::unpin(BlockId id) noexcept {
  Block& block = blocks_[id.index()];
  if (!block.is_alive || block.pins == 0) return;
  --block.pins;
  if (block.pins == 0) {
    if (std::exchange(block.is_open, false))
      note_write(block);
    else
      note_use(block);
  }
  if (block.pins == 0 && block.owner != nullptr) remove_immovable(id);
}

void TensorPool::State::mark_written(BlockId id) {
  Block& block = at(id);
  if (block.residence != Residence::kResident)
    throw InvalidArgument(
        fmt::format("block {}: it can only be written where it is resident", id.value()));
  if (block.pins > 0)
    block.is_open = true;
  else
    note_write(block);
  if (!has_copy(block)) return;
  unlink_clean(id);
  drop_copy(id);
}

void TensorPool::State::mark_all_written() noexcept {
  if (is_ahead_) all_used_ = device_.compute_mark();
  for (CleanList& list : clean_) {
    while (list.first.valid()) {
      const BlockId id = list.first;
      unlink_clean(id);
      drop_copy(id);
    }
  }
}

void* TensorPool::State::find_hole(std::int64_t bytes) {
  const std::optional<SegmentId> segment = try_range(align_up(bytes, arena_.alignment()));
  if (!segment) return nullptr;
  void* address = base_ + arena_.offset(*segment);
  arena_.deallocate(*segment);
  return address;
}

// --- Books --------------------------------------------------------------------------------------

bool TensorPool::State::contains(const void* address) const noexcept {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  return place >= base && place - base < static_cast<std::uintptr_t>(options_.budget_bytes);
}

PoolStatistics TensorPool::State::stats() const noexcept {
  PoolStatistics stats = totals_;
  stats.budget_bytes = options_.budget_bytes;
  stats.live_bytes = live_bytes();
  stats.requested_bytes = requested_bytes_;
  stats.peak_bytes = peak_bytes_;
  stats.peak_waste_bytes = peak_waste_bytes_;
  stats.pinned_bytes = immovable_bytes_ + foreign_bytes_;
  stats.foreign_bytes = foreign_bytes_;
  stats.free_bytes = usable_bytes();
  stats.largest_free_bytes = std::min(arena_.largest_free_bytes(), usable_bytes());
  stats.host_bytes = host_.used_bytes();
  stats.file_bytes = host_.file() == nullptr ? 0 : host_.file()->used_bytes();
  return stats;
}

// --- The public face ----------------------------------------------------------------------------

TensorPool::TensorPool(device::Device& device, HostTier& host, EvictionPolicy& policy,
                       const TensorPoolOptions& options)
    : state_(std::make_unique<State>(device, host, policy, options)) {}
TensorPool::~TensorPool() = default;

BlockId TensorPool::allocate(std::int64_t bytes) { return state_->allocate(bytes); }
BlockId TensorPool::allocate_at(void* address, std::int64_t bytes) {
  return state_->allocate_at(address, bytes);
}
BlockId TensorPool::allocate_below(std::int64_t bytes, BlockOwner* owner) {
  return state_->allocate_below(bytes, owner);
}
void TensorPool::deallocate(BlockId block) noexcept { state_->deallocate(block); }
void TensorPool::bind(BlockId block, BlockOwner* owner) { state_->bind(block, owner); }
void TensorPool::unbind(BlockId block) { state_->unbind(block); }
void TensorPool::pin(BlockId block) { state_->pin(block); }
void TensorPool::unpin(BlockId block) noexcept { state_->unpin(block); }
void TensorPool::acquire(std::span<const BlockId> blocks, const Room& room) {
  state_->acquire(blocks, room);
}
void TensorPool::release(std::span<const BlockId> blocks) noexcept {
  for (const BlockId block : blocks) state_->unpin(block);
}
void TensorPool::make_room(std::int64_t bytes, std::int64_t largest_bytes) {
  state_->acquire({}, {.bytes = bytes, .largest_bytes = largest_bytes});
}
void TensorPool::mark_written(BlockId block) { state_->mark_written(block); }
void TensorPool::mark_all_written() { state_->mark_all_written(); }
void* TensorPool::find_hole(std::int64_t bytes) { return state_->find_hole(bytes); }
void TensorPool::evict(BlockId block) { state_->evict(block); }
bool TensorPool::begin_evict(BlockId block) { return state_->begin_evict(block); }
bool TensorPool::begin_fetch(BlockId block) { return state_->begin_fetch(block); }
void TensorPool::poll() noexcept { state_->poll(); }
void TensorPool::synchronize() noexcept { state_->synchronize(); }
void TensorPool::release_to(BlockId block, void* destination, Side side) {
  state_->read(block, destination, side);
  state_->deallocate(block);
}
void TensorPool::read(BlockId block, void* destination, Side side) {
  state_->read(block, destination, side);
}
void TensorPool::read_part(BlockId block, std::int64_t offset, void* destination,
                           std::int64_t bytes, Side side) {
  state_->read_part(block, offset, destination, bytes, side);
}
void TensorPool::write_part(BlockId block, std::int64_t offset, const void* source,
                            std::int64_t bytes, Side side) {
  state_->write_part(block, offset, source, bytes, side);
}

BlockId TensorPool::find(const void* address) const noexcept {
  if (!contains(address)) return {};
  return BlockId(state_->index_.find(static_cast<const std::byte*>(address) - state_->base_));
}
bool TensorPool::contains(const void* address) const noexcept { return state_->contains(address); }
void* TensorPool::base() const noexcept { return state_->base_; }
void* TensorPool::address(BlockId block) const { return state_->address(state_->at(block)); }
std::int64_t TensorPool::size(BlockId block) const { return state_->at(block).bytes; }
Residence TensorPool::residence(BlockId block) const { return state_->at(block).residence; }
bool TensorPool::host_copy_valid(BlockId block) const {
  const Block& state = state_->at(block);
  return state.residence != Residence::kMovingOut && (state.host.valid() || state.file.valid());
}
int TensorPool::pins(BlockId block) const { return state_->at(block).pins; }
BlockOwner* TensorPool::owner(BlockId block) const { return state_->at(block).owner; }

void TensorPool::reserve_foreign(std::int64_t bytes) { state_->reserve_foreign(bytes); }
void TensorPool::release_foreign(std::int64_t bytes) noexcept { state_->release_foreign(bytes); }
PoolStatistics TensorPool::stats() const noexcept { return state_->stats(); }
void TensorPool::reset_peak() noexcept { state_->note_peak(); }
void TensorPool::check_invariants() const { state_->check_invariants(); }

}  // namespace plimsoll::pool
