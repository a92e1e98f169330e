// SPDX-License-Identifier: Apache-2.0
// The storages that a session has taken over, and the memory they live in.
//
// Nouns: ManagedStorage, OperatorFrame, Arena.
//
// A storage is *managed* from the first operator of a step that touches it: its DataPtr then
// carries the ManagedStorage as context, so that its end is noticed wherever its bytes are. What
// cannot be moved (from_blob, not resizable, copy-on-write, shared) is managed as *foreign*: its
// bytes stay where they are and count as pinned.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include "plimsoll/pool/file_tier.h"
#include "plimsoll/pool/host_tier.h"
#include "plimsoll/pool/tensor_pool.h"
#include "plimsoll/session.h"

#include "arena_source.h"
#include "operator_script.h"
#include "session_device.h"
#include "step_tracker.h"
#include "tensor_storages.h"

namespace plimsoll::detail {

// Debug builds poison vacated bytes, keep checksums of spilled ones and walk the pool after a step.
#ifdef NDEBUG
inline constexpr bool kIsDebugBuild = false;
#else
inline constexpr bool kIsDebugBuild = true;
#endif

class Arena;

struct ManagedStorage;

// A track that leads back to its storage.
struct OwnedTrack final : Track {
  ManagedStorage* owner = nullptr;
};

// Found by its StorageImpl's address, which the weak reference keeps from being used again.
struct ManagedStorage final : pool::BlockOwner {
  void on_move(pool::BlockId block, void* old_address, void* new_address) noexcept override;
  bool before_move(pool::BlockId block) noexcept override;

  Arena* arena = nullptr;
  c10::StorageImpl* storage = nullptr;
  c10::weak_intrusive_ptr<c10::StorageImpl> reference{c10::intrusive_ptr<c10::StorageImpl>()};
  pool::BlockId block;  // none where it is foreign or its bytes are elsewhere
  std::int64_t foreign_bytes = 0;
  int frames = 0;        // operators that hold it
  bool is_dead = false;  // ended while a frame held it
  int user_pins = 0;
  std::uint64_t frame_serial = 0;  // the last operator that named it; for finding duplicates
  OwnedTrack track;
};

// Makes data_ptr() throw a text that says where the bytes are.
void say_evicted(c10::StorageImpl* storage);

// What one operator holds while it runs.
struct OperatorFrame {
  struct Operand {
    ManagedStorage* managed;
    pool::BlockId block;
    bool writes;
  };
  c10::SmallVector<Operand, 8> operands;
  // Read and written in parts, wherever their bytes are.
  c10::SmallVector<ManagedStorage*, 4> streamed;
  bool is_recorded = false;  // counted by the tracker
  bool can_be_cut = false;   // the operator would run in chunks where it does not fit
  std::uint64_t script_key = 0;
  std::size_t failed_at = 0;  // allocations that the last failed run had made or asked for
};

// Threads: every public member takes the arena's own lock. Deleters run on any thread.
// Lifetime: shared; a retired arena lives on until the last block that it could not take back.
class Arena final : public ArenaSource,
                    public pool::EvictionPolicy,
                    public std::enable_shared_from_this<Arena> {
 public:
  using Touched = std::pair<c10::StorageImpl*, bool>;  // storage, written

  // Errors: InvalidArgument (budget, spill folder), DeviceOutOfMemory.
  explicit Arena(const SessionOptions& options);
  ~Arena() override;

  void begin_step();
  void end_step(bool is_complete);

  // Makes the storages resident and pins them. In a step, unknown ones are taken over; outside of
  // one they are left alone. Errors: c10::OutOfMemoryError, DeviceError; nothing is held then.
  void begin_operator(std::uint64_t op_hash, const std::string& name,
                      const c10::SmallVectorImpl<Touched>& storages, OperatorFrame& frame);
  // Takes over what the operator made, lets go of its operands.
  void end_operator(OperatorFrame& frame, const c10::SmallVectorImpl<c10::StorageImpl*>& results);
  // The kernel ran out of memory inside and has changed nothing: lays out what it allocated so far,
  // makes room for that and holds the operands again. False where a further run would do no better;
  // the operands are then let go by abandon_operator().
  bool prepare_rerun(OperatorFrame& frame) noexcept;
  // Errors: c10::OutOfMemoryError where `bytes` cannot stand in the budget at once.
  void check_fits(const std::string& name, std::int64_t bytes);
  // Says whether `bytes` could never stand in the arena together.
  bool is_beyond(std::int64_t bytes) const;
  // Before begin_operator(), for what it will read and write in parts: keeps the storage alive for
  // the frame, but leaves its bytes where they are. In a step, an unknown one is taken over below
  // the arena, a new one (without memory) of its size too. False where its memory is not ours;
  // then, and on errors, the frame is to be given to abandon_operator(). Errors:
  // c10::OutOfMemoryError, DeviceError.
  bool stream(c10::StorageImpl* storage, OperatorFrame& frame);
  // Copies between a part of the storage, wherever it is, and memory of the caller's operator.
  // Errors: c10::OutOfMemoryError, DeviceError.
  void read_part(c10::StorageImpl* storage, std::int64_t offset, void* to, std::int64_t bytes);
  void write_part(c10::StorageImpl* storage, std::int64_t offset, const void* from,
                  std::int64_t bytes);
  // The most that an operator of this step has needed which cannot be cut. The session's thread.
  std::int64_t largest_need_bytes() const { return tracker_.largest_need_bytes(); }
  // The operator threw: lets go of its operands.
  void abandon_operator(OperatorFrame& frame) noexcept;

  void pin(c10::StorageImpl* storage);
  void unpin(c10::StorageImpl* storage);
  bool holds(c10::StorageImpl* storage) const;

  // Moves all storages back to the heap. Blocks that foreign code still holds keep the arena alive.
  void retire() noexcept;

  SessionReport report() const;
  void reset_peak();
  const std::shared_ptr<const KnownStep> last_known() const;
  // The budget less what is pinned outside of the arena.
  std::int64_t movable_budget_bytes() const;
  std::vector<SessionEvent> take_events();
  void add_event(SessionEvent event);
  std::int64_t now_ns() const;
  const Place& place() const { return place_; }

  // ArenaSource: allocations inside operators.
  void* allocate(std::size_t bytes) override;
  void deallocate(void* address) noexcept override;
  void record_stream(void* address, const c10::Stream& stream) override;
  // EvictionPolicy. Called by the pool under the lock.
  double eviction_cost(pool::BlockId block) const override;
  double slide_cost(std::int64_t bytes) const override;

 private:
  friend struct ManagedStorage;
  // Holds the lock, having waited for it without the outer one.
  class Guard;
  // The same; after letting it go, drops references that moves have taken.
  class Lock;

  Arena(const SessionOptions& options, std::unique_ptr<SessionDevice> device);
  static void end_managed(void* context);
  void storage_ended(ManagedStorage* managed) noexcept;
  ManagedStorage* find(c10::StorageImpl* storage) const;
  ManagedStorage* manage(c10::StorageImpl* storage);
  ManagedStorage* new_managed(c10::StorageImpl* storage);
  void adopt(ManagedStorage* managed);
  ManagedStorage* manage_below(c10::StorageImpl* storage);
  // Outside of a step: what an operator names and cannot stand in the arena together becomes
  // ordinary memory again. False in a step.
  bool leave_to_heap(const c10::SmallVectorImpl<Touched>& storages);
  void bind(ManagedStorage* managed, pool::BlockId block, void* address);
  c10::DataPtr data_at(void* address, ManagedStorage* managed) const;
  void end_block(pool::BlockId block) noexcept;
  bool join_streams(pool::BlockId block) noexcept;
  void keep_in_reach(ManagedStorage* managed) noexcept;
  void grow_in_arena(c10::StorageImpl* storage);
  bool holds_unbound(const c10::StorageImpl* storage) const;
  bool is_movable(c10::StorageImpl* storage) const;
  void unmanage(ManagedStorage* managed) noexcept;
  void hold(c10::StorageImpl* storage, bool writes, OperatorFrame& frame);
  void acquire(const OperatorFrame& frame, const ExpectedRoom& expected);
  void follow_script(std::shared_ptr<const OperatorScript> script);
  bool hold_again(OperatorFrame& frame, std::int64_t hole_bytes);
  pool::BlockId allocate_by_script(std::int64_t bytes);
  void let_go(OperatorFrame& frame) noexcept;
  void abandon(OperatorFrame& frame) noexcept;
  bool has_new_memory(const ManagedStorage& managed) const;
  void rebind(ManagedStorage* managed);
  void count_grown(ManagedStorage* managed) noexcept;
  bool drop_expired_foreign() noexcept;  // whether there were any
  void give_back(ManagedStorage* managed);
  void run_ahead() noexcept;
  void evict_due() noexcept;
  void set_strict(OperatorFrame::Operand& operand, bool strict);
  [[noreturn]] void throw_out_of_memory(const std::string& message, std::int64_t requested_bytes);
  [[noreturn]] void throw_host_full(const std::string& message) const;
  void acquire_retrying(const OperatorFrame& frame, const ExpectedRoom& expected);
  void note_peak();

  const SessionOptions options_;
  std::unique_ptr<SessionDevice> device_;
  const Place place_;
  const bool overlaps_;
  const bool asks_back_;  // what left without the plan's asking, in time; measured on devices only
  std::unique_ptr<pool::FileTier> file_;
  std::unique_ptr<pool::HostTier> host_;
  std::unique_ptr<pool::TensorPool> pool_;

  mutable std::mutex mutex_;
  // All below are guarded by mutex_.
  StepTracker tracker_;
  ska::flat_hash_map<c10::StorageImpl*, std::unique_ptr<ManagedStorage>> managed_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> dropped_later_;
  std::shared_ptr<Arena> keep_alive_;  // set by retire() while blocks are out
  // Streams that recordStream() named for a block, until it ends.
  ska::flat_hash_map<std::int32_t, c10::SmallVector<c10::Stream, 2>> streams_of_blocks_;

  // The running operator's allocations.
  struct Scratch {
    std::uint64_t serial = 0;
    std::int64_t bytes = 0;
    std::size_t place = 0;  // in the trace
  };
  std::vector<Scratch> scratch_;  // by block
  std::uint64_t serial_ = 0;      // of the operator that began last
  std::int64_t op_live_bytes_ = 0;
  std::int64_t op_peak_bytes_ = 0;
  std::int64_t op_largest_bytes_ = 0;
  std::int64_t op_operand_bytes_ = 0;
  const std::string* op_name_ = nullptr;
  std::int64_t unbound_blocks_ = 0;
  AllocationTrace trace_;
  bool has_run_out_ = false;  // its last allocation failed for want of room
  ScriptBook scripts_;
  std::shared_ptr<const OperatorScript> script_;  // that the running operator follows
  std::byte* script_base_ = nullptr;

  // For the report.
  std::int64_t seen_peak_bytes_ = 0;
  std::string peak_op_;
  std::int64_t step_out_start_ = 0;
  std::int64_t step_in_start_ = 0;
  std::int64_t step_slid_start_ = 0;
  SessionReport last_step_;
  std::vector<SessionEvent> events_;
  std::int64_t step_start_ns_ = 0;
};

// Whoever holds mutex_ may come to wait for the outer lock: to take or drop a reference to a
// storage that has a Python object is to touch that object. So nobody may wait the other way round.
class Arena::Guard {
 public:
  explicit Guard(const Arena& arena)
      : outer_(arena.options_.outer_lock), lock_(arena.mutex_, std::try_to_lock) {
    if (lock_.owns_lock()) return;
    if (outer_ != nullptr) outer_state_ = outer_->let_go();
    lock_.lock();
  }
  ~Guard() {
    if (lock_.owns_lock()) lock_.unlock();
    if (outer_state_ != nullptr) outer_->take_back(outer_state_);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  void unlock() { lock_.unlock(); }

 private:
  OuterLock* const outer_;
  void* outer_state_ = nullptr;
  std::unique_lock<std::mutex> lock_;
};

class Arena::Lock {
 public:
  explicit Lock(Arena& arena) : arena_(arena), guard_(arena) {}
  ~Lock() {
    // Dropping a last reference runs a deleter, which takes the lock.
    auto dropped = std::move(arena_.dropped_later_);
    arena_.dropped_later_.clear();
    guard_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Arena& arena_;
  Guard guard_;
};

}  // namespace plimsoll::detail
