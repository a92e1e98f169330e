// SPDX-License-Identifier: Apache-2.0
// The unified tensor pool: one arena of exactly the budget, and tensors that come and go in it.
//
// Nouns: TensorPool, Room, PoolStatistics, TensorPoolOptions.
//
//     arena  [pinned][idle ][....][idle ][unbound][.......]   live <= budget, always
//               ^ operand   ^ free  ^ victim or slid  ^ of the operator that runs
//
// A block is *unbound* from allocate() to bind(): immovable, as its address may be in use without
// anyone having told us. A bound block without pins is *idle*: it may be evicted or slid.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "plimsoll/device/device.h"
#include "plimsoll/pool/block.h"
#include "plimsoll/pool/host_tier.h"

namespace plimsoll::pool {

struct TensorPoolOptions {
  std::int64_t budget_bytes = 0;  // > 0; the arena, less what reserve_foreign() takes
  // Fill ranges that become free with poison_pattern (debug; a pass over the bytes each time).
  bool poison = false;
  std::uint8_t poison_pattern = 0xFB;
};

// What an operator will allocate while it runs, beside its operands.
struct Room {
  std::int64_t bytes = 0;          // most that is live at one time
  std::int64_t largest_bytes = 0;  // the largest single allocation; 0: as `bytes`
  // True: the figures are a guess, met whole or else for the largest allocation or else not; that
  // is no error then.
  bool is_guess = false;
  // Slide the operands to the end of the region they share, so that what is not pinned is one
  // piece. For operators whose needs are not known: any allocation up to budget - pinned then
  // succeeds. Costs a copy of the operands that lie elsewhere.
  bool pack = false;
};

// All figures in bytes or counts; totals since construction unless said.
struct PoolStatistics {
  std::int64_t budget_bytes = 0;
  std::int64_t live_bytes = 0;        // arena ranges in use (rounded, moving included) + foreign
  std::int64_t requested_bytes = 0;   // the same ranges as asked for; live - foreign - this = waste
  std::int64_t peak_bytes = 0;        // of live_bytes since reset_peak()
  std::int64_t peak_waste_bytes = 0;  // of these, what rounding up to the alignment took
  std::int64_t pinned_bytes = 0;      // ranges of pinned or unbound blocks, + foreign
  std::int64_t foreign_bytes = 0;
  std::int64_t free_bytes = 0;  // budget - live
  std::int64_t largest_free_bytes = 0;
  std::int64_t offloaded_bytes = 0;   // copied out (rounded sizes are not: as asked for)
  std::int64_t prefetched_bytes = 0;  // copied in
  std::int64_t slid_bytes = 0;        // moved inside the arena
  std::int64_t host_bytes = 0;        // held now in the host tier
  std::int64_t file_bytes = 0;        // held now in the file tier
  std::int64_t evictions = 0;
  std::int64_t clean_evictions = 0;  // of these, without a copy
  std::int64_t fetches = 0;
  std::int64_t slides = 0;
  std::int64_t allocations = 0;
  std::int64_t blocks = 0;         // alive now, wherever
  std::int64_t failed_copies = 0;  // found in destructors and other noexcept places
};

// Guarantees. Live bytes never exceed the budget. A request that fits beside the immovable blocks
// is met by evicting and sliding idle ones. Nothing is lost: whatever is thrown, every block is
// readable afterwards, nothing of the call is pinned, and the same call can be tried again.
// Threads: needs the caller's lock for every call; owners are called under it.
// Cost: allocate and deallocate O(log n) without pressure, O(n log n) with; n: blocks in the arena.
// Determinism: same calls, same policy answers and same host room give the same addresses, except
// that finished asynchronous copies free ranges earlier or later.
// Asynchronous compute: every call returns without waiting for the device, but where host memory of
// the caller's or a file is read or written. Addresses are good for what is submitted to kCompute
// afterwards; memory given to read and write calls is used in its order.
class TensorPool {
 public:
  // Reserves the arena. All four outlive the pool. Errors: InvalidArgument, DeviceOutOfMemory.
  TensorPool(device::Device& device, HostTier& host, EvictionPolicy& policy,
             const TensorPoolOptions& options);
  // Waits for copies, drops all blocks without telling owners, releases the arena.
  ~TensorPool();
  TensorPool(const TensorPool&) = delete;
  TensorPool& operator=(const TensorPool&) = delete;

  // Makes an unbound block of `bytes` > 0, contents undefined, evicting and sliding as needed.
  // Errors: DeviceOutOfMemory (nothing changed); HostOutOfMemory, DeviceError (others may have
  // moved).
  BlockId allocate(std::int64_t bytes);
  // The same at a given address, a multiple of the alignment, moving nothing; no id where the bytes
  // from there on are not all free. O(n) in the blocks of the arena.
  BlockId allocate_at(void* address, std::int64_t bytes);
  // The start of the smallest free hole of at least `bytes`, null where there is none.
  void* find_hole(std::int64_t bytes);
  // Makes a block of `bytes` > 0 that starts below the arena, where it may be larger than that;
  // contents undefined. Errors: HostOutOfMemory, DeviceError; nothing changed.
  BlockId allocate_below(std::int64_t bytes, BlockOwner* owner);
  // Ends a block in any state. A range that a copy still uses is freed once the copy is done.
  void deallocate(BlockId block) noexcept;

  // Lets the block move when it is not pinned and names who is told. The owner outlives the
  // binding. Errors: InvalidArgument where it is bound.
  void bind(BlockId block, BlockOwner* owner);
  // Makes a resident block immovable again; it must be resident (InvalidArgument).
  void unbind(BlockId block);

  // Keeps a resident block where it is; counted. Errors: InvalidArgument where it is not resident.
  void pin(BlockId block);
  void unpin(BlockId block) noexcept;

  // Prepares an operator: makes all blocks resident, makes `room`, and pins each block once for
  // each time it is named. All or nothing.
  // Afterwards allocations of up to room.bytes in total find a hole, whatever their order.
  // Cost: about 10 ns a block where all are resident and there is room.
  // Errors: DeviceOutOfMemory (nothing changed), HostOutOfMemory, DeviceError (others may have
  // moved, nothing is pinned).
  void acquire(std::span<const BlockId> blocks, const Room& room = {});
  void release(std::span<const BlockId> blocks) noexcept;  // unpins each once
  // Makes room beside what is pinned, as acquire() with no blocks.
  void make_room(std::int64_t bytes, std::int64_t largest_bytes);

  // Says that a resident block's bytes were or will be changed: its host copy is dropped.
  void mark_written(BlockId block);
  // The same for all resident blocks. O(n) in those that have a copy.
  void mark_all_written();

  // Moves an idle block out, now. No-op where it is out already. A block whose host copy is
  // valid moves without a copy. Errors: InvalidArgument (pinned or unbound), HostOutOfMemory,
  // DeviceError; the block then stays resident.
  void evict(BlockId block);
  // Starts to move an idle block out. Returns false, and does nothing, where it is not idle and
  // resident or the host tier has no room. Errors: DeviceError, the block stays resident.
  bool begin_evict(BlockId block);
  // Starts to bring a block in from the host tier. Returns false, and does nothing, where there is
  // no hole without evicting, or it is not on the host. Errors: DeviceError, nothing changed.
  bool begin_fetch(BlockId block);
  // Notices copies that are done: frees ranges, tells owners. Never blocks.
  void poll() noexcept;
  // Waits for all copies. Blocks whose copy failed are where they were.
  void synchronize() noexcept;

  // Copies the block's bytes, wherever they are, to memory of size(block) bytes and ends the
  // block. The owner is not told. Errors: DeviceError, the block stays.
  void release_to(BlockId block, void* destination, Side side = Side::kHost);
  // Copies the block's bytes, wherever they are; changes nothing. Errors as above.
  void read(BlockId block, void* destination, Side side = Side::kHost);
  // Copies a part of the block's bytes, wherever they are, to a place in the arena or in memory on
  // `side`, and from one; moves nothing. In a file it reads, and writes, whole chunks of that.
  // Errors: InvalidArgument for bytes beyond the block; DeviceError, HostOutOfMemory (a file's
  // disk), after which the destination holds anything.
  void read_part(BlockId block, std::int64_t offset, void* destination, std::int64_t bytes,
                 Side side = Side::kHost);
  void write_part(BlockId block, std::int64_t offset, const void* source, std::int64_t bytes,
                  Side side = Side::kHost);

  // O(1). An unknown id is InvalidArgument. find() gives the block that starts exactly there and
  // has a range now, else no id.
  BlockId find(const void* address) const noexcept;
  bool contains(const void* address) const noexcept;  // inside the arena
  void* base() const noexcept;                        // the arena's first byte
  void* address(BlockId block) const;                 // null where not resident or moving out
  std::int64_t size(BlockId block) const;             // as asked for
  Residence residence(BlockId block) const;
  bool host_copy_valid(BlockId block) const;  // or the file's
  int pins(BlockId block) const;
  BlockOwner* owner(BlockId block) const;  // null where unbound

  // Counts memory outside of the arena against the budget, evicting if needed.
  // Errors: DeviceOutOfMemory (nothing changed), HostOutOfMemory, DeviceError (others may have
  // moved).
  void reserve_foreign(std::int64_t bytes);
  void release_foreign(std::int64_t bytes) noexcept;

  PoolStatistics stats() const noexcept;
  void reset_peak() noexcept;  // to live
  // Walks everything. Errors: InternalError naming the equation that does not hold. O(n log n).
  void check_invariants() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::pool
