// SPDX-License-Identifier: Apache-2.0
// The pool's state and its moves.
//
// Nouns: TensorPool::State, Block.
//
// What holds between calls (check_invariants() is these lines in code):
//   a block has a segment       <=> it is resident, moving out or moving in
//   a block stands in index_    <=> it is resident or moving out (its address is valid), not doomed
//   a block stands in moving_   <=> it is moving out or moving in
//   a block stands in a clean list <=> it is resident and has a copy on the host or in a file
//   a block stands in immovable_ <=> it is resident and pinned or unbound
//   live = arena_.used_bytes() + foreign <= budget
//
// On a device whose compute is asynchronous the books run ahead of the bytes, which follow in the
// order of the queues:
//   a range is given away while a copy may still use it  <=> it is guarded by that copy's event,
//     and whoever takes it next makes his queue wait for it
//   kCompute has written a block that is not pinned behind `written`, and used it behind `used`; a
//     free range behind the mark of freed_ that covers it
//   host bytes are written by copies on kCopyOut alone, each behind `spans_read_`; what reads them
//     is behind `written_below` and, once its block is resident, before kCompute's `read_below`
//   the host itself reads and writes host bytes only after settle_host()
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plimsoll/base/error.h"
#include "plimsoll/base/interval.h"
#include "plimsoll/pool/compaction.h"
#include "plimsoll/pool/file_tier.h"
#include "plimsoll/pool/range_allocator.h"
#include "plimsoll/pool/tensor_pool.h"

#include "pool/address_index.h"

namespace plimsoll::pool {

// What bytes of a device that the host cannot address go through on their way to a file.
inline constexpr std::int64_t kStagingBytes = 4 << 20;

struct Block {
  std::int64_t bytes = 0;        // as asked for
  std::int64_t range_bytes = 0;  // rounded up
  SegmentId segment;
  BlockOwner* owner = nullptr;  // null: unbound
  device::Event pending;        // of a moving block
  device::Event written_below;  // the copy that filled `host`, where it may still run
  device::Event used;           // kCompute's last use of the range
  device::Event written;        // the last that changed it
  device::Event read_below;     // its last reading of `host`
  HostSpan host;
  FileSpan file;
  BlockId clean_previous;
  BlockId clean_next;
  std::int32_t moving_index = -1;
  std::int32_t pins = 0;
  Residence residence = Residence::kResident;
  bool is_alive = false;   // the slot is in use
  bool is_doomed = false;  // deallocated while a copy runs
  bool is_held = false;    // named by the acquire() that runs: may be slid, not evicted
  bool is_open = false;    // whoever pins it may write it
};

// Threads: the pool's caller's lock. Sources: tensor_pool.cpp (life and books), movement.cpp
// (copies), parts.cpp (parts of blocks), room.cpp (making room), packing.cpp (operators of unknown
// needs), pool_invariants.cpp.
class TensorPool::State {
 public:
  State(device::Device& device, HostTier& host, EvictionPolicy& policy,
        const TensorPoolOptions& options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Life.
  BlockId allocate(std::int64_t bytes);
  BlockId allocate_at(void* address, std::int64_t bytes);
  void deallocate(BlockId id) noexcept;
  void bind(BlockId id, BlockOwner* owner);
  void unbind(BlockId id);
  void pin(BlockId id);
  void unpin(BlockId id) noexcept;
  void mark_written(BlockId id);
  void mark_all_written() noexcept;
  void* find_hole(std::int64_t bytes);

  // Copies.
  void evict(BlockId id);
  bool begin_evict(BlockId id);
  bool begin_fetch(BlockId id);
  void poll() noexcept;
  void synchronize() noexcept;
  void read(BlockId id, void* destination, Side side);

  // Parts (parts.cpp).
  BlockId allocate_below(std::int64_t bytes, BlockOwner* owner);
  void read_part(BlockId id, std::int64_t offset, void* destination, std::int64_t bytes, Side side);
  void write_part(BlockId id, std::int64_t offset, const void* source, std::int64_t bytes,
                  Side side);

  // Room.
  void acquire(std::span<const BlockId> ids, const Room& room);
  void reserve_foreign(std::int64_t bytes);
  void release_foreign(std::int64_t bytes) noexcept { foreign_bytes_ -= bytes; }

  // Books.
  Block& at(BlockId id);              // InvalidArgument where there is no such block
  const Block& at(BlockId id) const;  // the same
  void* address(const Block& block) const noexcept;
  bool contains(const void* address) const noexcept;  // in the arena
  Interval range_of(SegmentId segment) const noexcept {
    return {arena_.offset(segment), arena_.offset(segment) + arena_.bytes(segment)};
  }
  std::int64_t live_bytes() const noexcept { return arena_.used_bytes() + foreign_bytes_; }
  std::int64_t usable_bytes() const noexcept { return options_.budget_bytes - live_bytes(); }
  PoolStatistics stats() const noexcept;
  void check_invariants() const;

  device::Device& device_;
  HostTier& host_;
  EvictionPolicy& policy_;
  TensorPoolOptions options_;
  void note_peak() noexcept;
  std::int64_t peak_bytes_ = 0;
  std::int64_t peak_waste_bytes_ = 0;
  std::byte* base_ = nullptr;
  AddressIndex index_;

 private:
  enum class Tier : std::uint8_t { kHost, kFile };
  struct CleanList {
    BlockId first;
    BlockId last;
    std::int64_t bytes = 0;
  };
  struct Layout {
    std::vector<CompactionItem> items;
    std::vector<BlockId> blocks;  // of each item; none where free
  };
  class Holding;  // is_held for the length of an acquire()
  // A range whose bytes are used up to an event by somebody who does not own it any more.
  struct UsedRange {
    Interval range;
    device::Event until;
  };

  // Slots and ranges.
  BlockId take_slot();
  void give_slot(BlockId id) noexcept;
  static bool is_immovable(const Block& block) noexcept {
    return block.residence == Residence::kResident && (block.pins > 0 || block.owner == nullptr);
  }
  void add_immovable(BlockId id) noexcept;
  void remove_immovable(BlockId id) noexcept;
  std::vector<BlockId>::iterator immovable_place(BlockId id) noexcept;
  void give_range(BlockId id, SegmentId segment) noexcept;
  template <typename TakeRange>
  BlockId allocate_with(std::int64_t bytes, const TakeRange& take_range);
  void show_address(BlockId id) noexcept;
  void drop_range(BlockId id) noexcept;
  void poison(std::int64_t offset, std::int64_t bytes) noexcept;

  // Copies below the arena.
  bool has_copy(const Block& block) const noexcept {
    return block.host.valid() || block.file.valid();
  }
  void drop_copy(BlockId id) noexcept;
  void link_clean(BlockId id) noexcept;
  void unlink_clean(BlockId id) noexcept;
  CleanList& clean_list(const Block& block) noexcept {
    return clean_[static_cast<std::size_t>(block.host.valid() ? Tier::kHost : Tier::kFile)];
  }
  HostSpan take_host_span_or_throw(std::int64_t bytes);
  HostSpan take_host_span(std::int64_t bytes);
  FileSpan take_file_span(std::int64_t bytes);
  void write_file(const Block& block, const FileSpan& span);
  void read_file(const Block& block, void* arena_destination, void* host_destination);
  std::byte* staging();

  // Parts (parts.cpp).
  Block& settled(BlockId id, std::int64_t offset, std::int64_t bytes);
  void write_zeros(const FileSpan& span);
  void read_span(Block& block, std::int64_t offset, void* destination, std::int64_t bytes,
                 Side side);
  void write_span(Block& block, std::int64_t offset, const void* source, std::int64_t bytes,
                  Side side);
  void copy_from_buffer(void* destination, const void* buffer, std::int64_t bytes, Side side);
  void copy_to_buffer(void* buffer, const void* source, std::int64_t bytes, Side side);
  Side side_of(const void* memory, Side outside) const noexcept {
    return contains(memory) ? Side::kDevice : outside;
  }

  // Moves.
  device::Event copy_out(const void* source, void* host, std::int64_t bytes,
                         const device::Event& made);
  device::Event last_write(const Block& block) const noexcept;
  void note_use(Block& block) noexcept;
  void note_write(Block& block) noexcept;
  void note_free(const Interval& range, const device::Event& used) noexcept;
  device::Event last_use_of(const Interval& range) const noexcept;
  void wait_for_range(const Interval& range, device::Queue queue);
  void guard_range(const Block& block, const device::Event& event) noexcept;
  void settle_host();
  void vacate_for(std::int64_t bytes) noexcept;
  void evict_now(BlockId id);
  void leave_arena(BlockId id) noexcept;
  void fetch_now(BlockId id);
  void slide_to(BlockId id, std::int64_t offset);
  void start_moving(BlockId id, Residence residence, const device::Event& event) noexcept;
  void stop_moving(BlockId id) noexcept;
  void finish_move(BlockId id) noexcept;
  void keep_resident(BlockId id) noexcept;
  bool copy_arrived(const Block& block) noexcept;
  void end_block(BlockId id) noexcept;

  // The walker (pool_invariants.cpp).
  void check_block(BlockId id) const;
  void check_clean_list(Tier tier) const;

  // Room.
  std::optional<SegmentId> try_range(std::int64_t bytes);
  SegmentId make_range(std::int64_t bytes);
  void make_hole(std::int64_t bytes);
  bool has_hole(std::int64_t bytes) const noexcept;
  bool improve(std::int64_t hole_bytes, std::int64_t usable,
               std::optional<HostOutOfMemory>& host_full);
  Layout describe(bool may_write_below) const;
  CompactionItem describe_block(BlockId id, bool may_write_below) const;
  void execute(const CompactionPlan& plan, const Layout& layout);
  SegmentId free_segment_with(std::int64_t offset) const;
  [[noreturn]] void throw_out_of_memory(std::int64_t bytes, const char* what) const;
  bool fast_acquire(std::span<const BlockId> ids, const Room& room);
  void check_fits(std::span<const BlockId> ids, const Room& room) const;
  void settle_held(std::span<const BlockId> ids) noexcept;
  void fetch_missing(std::span<const BlockId> ids);
  std::int64_t bytes_staying(std::span<const BlockId> ids) const;
  void make_room(const Room& room, std::span<const BlockId> ids);

  // Packing (packing.cpp).
  template <typename Visit>
  void visit_gaps(std::span<const BlockId> fixed, const Visit& visit) const;
  std::vector<BlockId> by_offset(std::span<const BlockId> ids) const;
  void pack(std::span<const BlockId> ids);
  bool is_packed_well(std::span<const BlockId> ids) const;
  bool clear_window(const Interval& window);
  bool slide_out_of(BlockId id, const Interval& window);
  std::optional<SegmentId> range_at_edge(std::int64_t bytes);

  const bool is_ahead_;  // compute is asynchronous
  std::int64_t foreign_bytes_ = 0;
  std::int64_t requested_bytes_ = 0;  // of blocks with a range
  std::int64_t immovable_bytes_ = 0;  // ranges of pinned and unbound blocks
  std::vector<BlockId> immovable_;    // these blocks, by offset; few but for what a user pins
  RangeAllocator arena_;
  std::vector<Block> blocks_;
  std::vector<BlockId> unused_;
  std::vector<BlockId> moving_;
  std::vector<UsedRange> guarded_;  // by copies
  std::deque<UsedRange> freed_;     // by kCompute; those freed last
  device::Event freed_before_;      // what freed_ has forgotten was used no later
  device::Event all_used_;          // any block may have been used up to here
  device::Event spans_read_;        // host spans that are free were read no later
  std::array<CleanList, 2> clean_;
  std::byte* staging_ = nullptr;
  bool is_packed_ = false;  // the last acquire() asked for it: allocations go to the edges of gaps
  PoolStatistics totals_;
};

}  // namespace plimsoll::pool
