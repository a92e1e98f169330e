// SPDX-License-Identifier: Apache-2.0
// What the pool and its user say to one another about a block.
//
// Nouns: BlockId, Residence, Side, BlockOwner, EvictionPolicy.
#pragma once

#include <cstdint>

#include "plimsoll/base/id.h"

namespace plimsoll::pool {

// Names a block from allocate() to deallocate(); then the number is used again. Dense and small.
using BlockId = Id<struct BlockTag>;

// Where a block's bytes are.
//
//     kResident --begin_evict--> kMovingOut --copy done--> kHost or kFile
//         ^------copy done------ kMovingIn <--begin_fetch----'
//
// A moving block still owns its arena range, which counts as live.
enum class Residence : std::uint8_t { kResident, kMovingOut, kMovingIn, kHost, kFile };

// Where memory of the caller's is that lies outside of the arena.
enum class Side : std::uint8_t { kHost, kDevice };

// Told where its block is. Called under the pool's caller's lock and before the old range is
// reused; must not call the pool.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  // new_address is null where the block was evicted, old_address where it came back. Both set: it
  // was slid inside the arena; its bytes are at the new address already (for what comes later on
  // kCompute, where compute is asynchronous).
  virtual void on_move(BlockId block, void* old_address, void* new_address) noexcept = 0;
  // Called before its bytes are taken away from where they are. True where work that the device's
  // queues do not know of, and that may use the bytes, has been put in front of kCompute's end.
  virtual bool before_move(BlockId block) noexcept { return false; }
};

// Says what evictions cost, in any unit. Must not change the pool.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The cost of evicting this idle block now, whole (not a byte), >= 0; infinite: do not. The pool
  // minimises the sum over the victims of a request.
  virtual double eviction_cost(BlockId block) const = 0;
  // The cost of moving `bytes` inside the arena, in the same unit; linear. 0: any slide is better
  // than any eviction, fewest bytes first; then slides may move many times what evictions move.
  // With costs of copied bytes over operators to next use, 1 to 5 bytes' cost over the operators of
  // a step is a good price.
  virtual double slide_cost(std::int64_t bytes) const { return 0.0 * static_cast<double>(bytes); }
};

}  // namespace plimsoll::pool
