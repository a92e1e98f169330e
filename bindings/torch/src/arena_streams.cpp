// SPDX-License-Identifier: Apache-2.0
// What recordStream() promises for blocks of the arena.
#include <algorithm>

#include "arena.h"

namespace plimsoll::detail {

bool ManagedStorage::before_move(pool::BlockId moved) noexcept {
  return arena->join_streams(moved);
}

void Arena::end_block(pool::BlockId block) noexcept {
  if (join_streams(block)) streams_of_blocks_.erase(block.value());
  pool_->deallocate(block);
}

// What other streams were given that uses the block comes before its bytes are used otherwise.
// Says whether there are any.
bool Arena::join_streams(pool::BlockId block) noexcept {
  if (streams_of_blocks_.empty()) return false;
  const auto found = streams_of_blocks_.find(block.value());
  if (found == streams_of_blocks_.end()) return false;
  for (const c10::Stream& stream : found->second) device_->join(stream);
  return true;
}

void Arena::record_stream(void* address, const c10::Stream& stream) {
  const Lock lock(*this);
  const pool::BlockId block = pool_->find(address);
  if (!block.valid() || stream.device() != place_.device) return;
  auto& streams = streams_of_blocks_[block.value()];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

}  // namespace plimsoll::detail
