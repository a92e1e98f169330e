// SPDX-License-Identifier: Apache-2.0
// The walker: every equation of the pool's books, checked from scratch.
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "pool/tensor_pool_state.h"

namespace plimsoll::pool {

void TensorPool::State::check_block(BlockId id) const {
  const Block& block = blocks_[id.index()];
  const bool is_moving =
      block.residence == Residence::kMovingOut || block.residence == Residence::kMovingIn;
  const bool has_range = block.residence == Residence::kResident || is_moving;
  const bool has_address = !block.is_doomed && has_range && block.residence != Residence::kMovingIn;
  const auto check = [&](bool holds, const char* what) {
    PLIMSOLL_CHECK(holds, fmt::format("block {}: {}", id.value(), what));
  };
  check(block.segment.valid() == has_range, "its range and its residence disagree");
  check((block.moving_index >= 0) == is_moving, "it is wrongly listed as moving");
  if (is_moving) check(moving_[static_cast<std::size_t>(block.moving_index)] == id, "moving list");
  if (has_range) {
    check(!arena_.is_free(block.segment), "its range is free");
    check(arena_.tag(block.segment) == id.value(), "its range belongs to another");
    check(arena_.bytes(block.segment) == block.range_bytes, "its range has another size");
  }
  if (has_range && !block.is_doomed && has_address)
    check(index_.find(arena_.offset(block.segment)) == id.value(), "its address is not indexed");
  check(block.bytes > 0 && block.bytes <= block.range_bytes, "its sizes disagree");
  check(block.pins == 0 || block.residence == Residence::kResident,
        "it is pinned but not resident");
  check(block.owner != nullptr || block.is_doomed || block.residence == Residence::kResident,
        "it is unbound but not resident");
  check(!(block.host.valid() && block.file.valid()), "it has two copies below");
  check(!block.is_held, "it is held outside of an acquire");
  if (block.residence == Residence::kHost) check(block.host.valid(), "it has no host copy");
  if (block.residence == Residence::kFile) check(block.file.valid(), "it has no file copy");
  if (is_moving) check(block.host.valid(), "it moves without a host copy");
}

void TensorPool::State::check_clean_list(Tier tier) const {
  const CleanList& list = clean_[static_cast<std::size_t>(tier)];
  std::int64_t listed = 0;
  std::int64_t bytes = 0;
  BlockId previous;
  for (BlockId id = list.first; id.valid(); id = blocks_[id.index()].clean_next) {
    const Block& block = blocks_[id.index()];
    PLIMSOLL_CHECK(block.clean_previous == previous, "the list of clean blocks is broken");
    PLIMSOLL_CHECK(block.is_alive && block.residence == Residence::kResident,
                   "a block that is not resident is listed as clean");
    PLIMSOLL_CHECK(tier == Tier::kHost ? block.host.valid() : block.file.valid(),
                   "a clean block has no copy in its tier");
    previous = id;
    bytes += block.bytes;
    ++listed;
  }
  PLIMSOLL_CHECK(list.last == previous && list.bytes == bytes, "a clean list is miscounted");
  std::int64_t clean = 0;
  for (const Block& block : blocks_)
    if (block.is_alive && block.residence == Residence::kResident &&
        (tier == Tier::kHost ? block.host.valid() : block.file.valid()))
      ++clean;
  PLIMSOLL_CHECK(clean == listed, "a clean block is not listed");
}

void TensorPool::State::check_invariants() const {
  arena_.check_invariants();
  host_.check_invariants();
  if (host_.file() != nullptr) host_.file()->check_invariants();
  std::int64_t used = 0;
  std::int64_t requested = 0;
  std::int64_t immovable = 0;
  std::size_t immovable_blocks = 0;
  std::int64_t alive = 0;
  std::int64_t addresses = 0;
  std::int64_t moving = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (!block.is_alive) continue;
    check_block(BlockId(i));
    alive += block.is_doomed ? 0 : 1;
    moving += block.moving_index >= 0 ? 1 : 0;
    if (!block.segment.valid()) continue;
    used += block.range_bytes;
    requested += block.bytes;
    if (is_immovable(block)) {
      immovable += block.range_bytes;
      ++immovable_blocks;
    }
    if (!block.is_doomed && block.residence != Residence::kMovingIn) ++addresses;
  }
  PLIMSOLL_CHECK(used == arena_.used_bytes(), "arena ranges without a block");
  PLIMSOLL_CHECK(requested == requested_bytes_, "requested bytes are miscounted");
  PLIMSOLL_CHECK(immovable == immovable_bytes_, "pinned bytes are miscounted");
  PLIMSOLL_CHECK(immovable_blocks == immovable_.size(), "the list of pinned blocks has strangers");
  std::int64_t end = 0;
  for (const BlockId id : immovable_) {
    const Block& block = blocks_[id.index()];
    PLIMSOLL_CHECK(is_immovable(block) && arena_.offset(block.segment) >= end,
                   "the list of pinned blocks is out of order");
    end = range_of(block.segment).end;
  }
  PLIMSOLL_CHECK(alive == totals_.blocks, "blocks are miscounted");
  PLIMSOLL_CHECK(addresses == index_.count(), "the address index has strangers");
  PLIMSOLL_CHECK(moving == static_cast<std::int64_t>(moving_.size()),
                 "the moving list has strangers");
  PLIMSOLL_CHECK(foreign_bytes_ >= 0 && live_bytes() <= options_.budget_bytes,
                 "the budget is exceeded");
  PLIMSOLL_CHECK(peak_bytes_ >= live_bytes() && peak_bytes_ <= options_.budget_bytes,
                 "the peak is out of range");
  check_clean_list(Tier::kHost);
  check_clean_list(Tier::kFile);
}

}  // namespace plimsoll::pool
