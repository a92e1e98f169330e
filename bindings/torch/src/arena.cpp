// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "plimsoll/base/error.h"

#include "host_allocator.h"
#include "pointer_checks.h"

namespace plimsoll::detail {
namespace {

constexpr const char* kEvictedText =
    "Plimsoll: this tensor's bytes are out of the arena. Operators bring them back; for a raw "
    "pointer call Session::pin(tensor) first and keep it pinned while the pointer is in use.";
constexpr const char* kStrictText =
    "Plimsoll (strict_pointers): the address of this tensor's bytes may change with any operator. "
    "Call Session::pin(tensor) before taking a raw pointer.";

// For messages, where the operands could not all be taken over.
std::int64_t distinct_bytes(const c10::SmallVectorImpl<Arena::Touched>& storages,
                            const Place& place) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const auto is_same = [&](const Arena::Touched& other) {
      return other.first == storages[i].first;
    };
    const auto* end = storages.begin() + i;
    if (std::none_of(storages.begin(), end, is_same))
      bytes += place.rounded(storages[i].first->nbytes());
  }
  return bytes;
}

void replace_data(c10::StorageImpl* storage, c10::DataPtr&& data) {
  // The old context is ours to end, not the deleter's.
  storage->_mutable_data_ptr_no_checks().release_context();
  storage->set_data_ptr_noswap(std::move(data));
}

bool wants_overlap(Overlap overlap, const Place& place) {
  if (overlap != Overlap::kAuto) return overlap == Overlap::kOn;
  if (!place.is_host()) return true;
  // On the host a copy engine is a thread: it helps only where operators leave it a core.
  return static_cast<int>(std::thread::hardware_concurrency()) > at::get_num_threads();
}

}  // namespace

void say_evicted(c10::StorageImpl* storage) { forbid_pointers(storage, kEvictedText); }

void ManagedStorage::on_move(pool::BlockId, void* old_address, void* new_address) noexcept {
  // A storage that is dying on another thread is left alone: its deleter comes with this object as
  // context, whatever the address. One that is not must not start to die while its pointer changes.
  c10::intrusive_ptr<c10::StorageImpl> keep = reference.lock();
  if (keep == nullptr) return;
  replace_data(storage, arena->data_at(new_address, this));
  if (new_address == nullptr) {
    say_evicted(storage);
  } else if (arena->options_.strict_pointers && frames == 0 && user_pins == 0) {
    forbid_pointers(storage, kStrictText);
  } else if (old_address == nullptr) {
    allow_pointers(storage);
  }
  arena->dropped_later_.push_back(std::move(keep));
  if (new_address == nullptr && arena->asks_back_) arena->tracker_.note_eviction(track);
  if (arena->options_.record_events && (old_address == nullptr || new_address == nullptr)) {
    const auto kind =
        new_address == nullptr ? SessionEvent::Kind::kEvict : SessionEvent::Kind::kFetch;
    const std::int64_t now = arena->now_ns();
    arena->events_.push_back(
        {kind, arena->op_name_ != nullptr ? *arena->op_name_ : "", now, now, track.bytes});
  }
}

Arena::Arena(const SessionOptions& options) : Arena(options, SessionDevice::make(options)) {}

Arena::Arena(const SessionOptions& options, std::unique_ptr<SessionDevice> device)
    : ArenaSource(device->where()),
      options_(options),
      device_(std::move(device)),
      place_{device_->where(), device_->device().info().alignment_bytes},
      overlaps_(wants_overlap(options.overlap, place_)),
      asks_back_(overlaps_ && !place_.is_host()),
      tracker_(options.eviction_order == EvictionOrder::kLeastRecentlyUsed) {
  if (options.budget_bytes <= 0) {
    throw InvalidArgument("SessionOptions::budget_bytes is " +
                          std::to_string(options.budget_bytes) +
                          "; write a positive number of bytes");
  }
  if (options.strict_pointers && !can_forbid_pointers()) {
    throw Unsupported(
        "SessionOptions::strict_pointers: this LibTorch cannot make data_ptr() throw for "
        "a time; leave it off, or take a later release");
  }
  if (!options.spill_folder.empty()) {
    pool::FileTierOptions file;
    file.folder = options.spill_folder;
    file.faults = options.testing_faults;
    file.verify_checksums = kIsDebugBuild;
    file_ = std::make_unique<pool::FileTier>(file);
  }
  pool::HostTierOptions host;
  host.limit_bytes = options.host_limit_bytes;
  host.file = file_.get();
  host_ = std::make_unique<pool::HostTier>(device_->device(), host);
  pool::TensorPoolOptions pool;
  pool.budget_bytes = options.budget_bytes;
  pool.poison = options.poison || kIsDebugBuild;
  pool_ = std::make_unique<pool::TensorPool>(device_->device(), *host_, *this, pool);
  const auto* base = static_cast<const char*>(pool_->base());
  HostAllocator::installed().add_arena(base, base + options.budget_bytes, this);
}

Arena::~Arena() { HostAllocator::installed().remove_arena(this); }

ManagedStorage* Arena::find(c10::StorageImpl* storage) const {
  const auto found = managed_.find(storage);
  return found == managed_.end() ? nullptr : found->second.get();
}

// A storage grows by the allocator that made it: LibTorch's own would put one from before the
// installation past the budget.
void Arena::grow_in_arena(c10::StorageImpl* storage) {
  if (storage->allocator() == &device_->stock_allocator())
    storage->set_allocator(&device_->allocator());
}

ManagedStorage* Arena::new_managed(c10::StorageImpl* storage) {
  grow_in_arena(storage);
  auto managed = std::make_unique<ManagedStorage>();
  managed->arena = this;
  managed->storage = storage;
  managed->reference = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  managed->track.owner = managed.get();
  managed->track.bytes = place_.rounded(storage->nbytes());
  ManagedStorage* pointer = managed.get();
  managed_[storage] = std::move(managed);
  return pointer;
}

c10::DataPtr Arena::data_at(void* address, ManagedStorage* managed) const {
  return {address, managed, &Arena::end_managed, place_.device};
}

bool Arena::holds_unbound(const c10::StorageImpl* storage) const {
  const c10::DataPtr& data = const_cast<c10::StorageImpl*>(storage)->_mutable_data_ptr_no_checks();
  return data.get() != nullptr && data.get_context() == data.get() &&
         pool_->find(data.get()).valid();
}

// Memory of LibTorch's own that nobody else was given the address of. A storage that was exported
// (to NumPy) is marked as not resizable; one that was read from a file is too, but has no
// allocator.
bool Arena::is_movable(c10::StorageImpl* storage) const {
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  const bool is_private = storage->resizable() || storage->allocator() == nullptr;
  return is_private && !storage->received_cuda() && data.get_context() == data.get() &&
         device_->owns_deleter(data.get_deleter());
}

void Arena::bind(ManagedStorage* managed, pool::BlockId block, void* address) {
  pool_->bind(block, managed);
  managed->block = block;
  replace_data(managed->storage, data_at(address, managed));
}

void Arena::adopt(ManagedStorage* managed) {
  c10::StorageImpl* storage = managed->storage;
  const auto bytes = static_cast<std::int64_t>(storage->nbytes());
  const pool::BlockId block = pool_->allocate(bytes);
  void* address = pool_->address(block);
  const c10::DataPtr& old = storage->_mutable_data_ptr_no_checks();
  try {
    device_->copy(address, old.get(), bytes);
    device_->note_use(old);
  } catch (...) {
    pool_->deallocate(block);
    throw;
  }
  pool_->bind(block, managed);
  managed->block = block;
  // This ends the old DataPtr, by its own deleter.
  storage->set_data_ptr_noswap(data_at(address, managed));
}

ManagedStorage* Arena::manage(c10::StorageImpl* storage) {
  void* address = storage->_mutable_data_ptr_no_checks().get();
  if (address == nullptr) return nullptr;
  ManagedStorage* managed = new_managed(storage);
  try {
    if (holds_unbound(storage)) {
      bind(managed, pool_->find(address), address);
      --unbound_blocks_;
    } else if (is_movable(storage)) {
      adopt(managed);
    } else {
      drop_expired_foreign();
      pool_->reserve_foreign(managed->track.bytes);
      managed->foreign_bytes = managed->track.bytes;
      managed->track.is_immovable = true;
    }
  } catch (...) {
    managed_.erase(storage);
    throw;
  }
  return managed;
}

void Arena::unmanage(ManagedStorage* managed) noexcept {
  tracker_.forget(managed->track);
  if (managed->foreign_bytes > 0) pool_->release_foreign(managed->foreign_bytes);
  managed_.erase(managed->storage);
}

void Arena::end_managed(void* context) {
  auto* managed = static_cast<ManagedStorage*>(context);
  managed->arena->storage_ended(managed);
}

void Arena::storage_ended(ManagedStorage* managed) noexcept {
  std::shared_ptr<Arena> last;  // outlives the lock
  const Lock lock(*this);
  if (managed->block.valid()) end_block(managed->block);
  managed->block = {};
  // A storage that lives on has been given other memory by its operator, which rebinds it.
  managed->is_dead = managed->reference.use_count() == 0;
  if (managed->frames == 0) {
    unmanage(managed);
  } else if (managed->is_dead) {
    tracker_.forget(managed->track);
  }
  if (keep_alive_ != nullptr && managed_.empty() && unbound_blocks_ == 0) {
    last = std::move(keep_alive_);
  }
}

void Arena::throw_out_of_memory(const std::string& message, std::int64_t requested_bytes) {
  const pool::PoolStatistics stats = pool_->stats();
  const std::int64_t need =
      op_operand_bytes_ + op_live_bytes_ + requested_bytes + stats.foreign_bytes;
  last_step_.shortage_bytes = std::max(last_step_.shortage_bytes, need);
  last_step_.shortage_op = op_name_ != nullptr ? *op_name_ : "";
  TORCH_CHECK_WITH(OutOfMemoryError, false, "Plimsoll: out of memory in ", last_step_.shortage_op,
                   ", which needs at least ", need, " bytes in all: ", message);
}

void Arena::throw_host_full(const std::string& message) const {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "Plimsoll: no room outside of the budget in ",
                   op_name_ != nullptr ? *op_name_ : std::string("a call between operators"), ": ",
                   message);
}

void Arena::hold(c10::StorageImpl* storage, bool writes, OperatorFrame& frame) {
  ManagedStorage* managed = find(storage);
  if (managed == nullptr) {
    if (!tracker_.is_in_step()) return;
    if (storage->nbytes() == 0) {
      grow_in_arena(storage);
      return;
    }
    managed = manage(storage);
    if (managed == nullptr) return;
  }
  if (managed->frame_serial == serial_) {
    for (auto& operand : frame.operands) operand.writes |= writes && operand.managed == managed;
    return;
  }
  managed->frame_serial = serial_;
  ++managed->frames;
  frame.operands.push_back({managed, {}, writes});
  op_operand_bytes_ += managed->track.bytes;
}

void Arena::acquire(const OperatorFrame& frame, const ExpectedRoom& expected) {
  c10::SmallVector<pool::BlockId, 8> blocks;
  for (const auto& operand : frame.operands) {
    if (operand.managed->block.valid()) blocks.push_back(operand.managed->block);
  }
  std::shared_ptr<const OperatorScript> script;
  if (!scripts_.empty()) script = scripts_.find(frame.script_key);
  pool::Room room;
  if (script != nullptr) {
    room.bytes = script->bytes;
    room.is_guess = true;
  } else if (expected.is_known) {
    room.bytes = expected.bytes;
    room.largest_bytes = expected.largest_bytes;
    room.is_guess = true;
  } else if (tracker_.is_in_step()) {
    // What it will allocate is not known. Where there is plenty, any hole will do.
    const std::int64_t plenty = std::max<std::int64_t>(4 * op_operand_bytes_, mib(1));
    room.pack = pool_->stats().largest_free_bytes < plenty;
  }
  pool_->acquire({blocks.data(), blocks.size()}, room);
  if (script != nullptr) follow_script(std::move(script));
}

void Arena::acquire_retrying(const OperatorFrame& frame, const ExpectedRoom& expected) {
  try {
    acquire(frame, expected);
  } catch (const DeviceOutOfMemory&) {
    if (!drop_expired_foreign()) throw;
    acquire(frame, expected);
  }
}

namespace {

std::uint64_t script_key(std::uint64_t op_hash, const OperatorFrame& frame) {
  std::uint64_t key = op_hash;
  for (const auto& operand : frame.operands) {
    key = (key ^ static_cast<std::uint64_t>(operand.managed->track.bytes)) * 1099511628211ULL;
  }
  return key;
}

}  // namespace

void Arena::begin_operator(std::uint64_t op_hash, const std::string& name,
                           const c10::SmallVectorImpl<Touched>& storages, OperatorFrame& frame) {
  const Lock lock(*this);
  device_->follow_current_stream();
  ++serial_;
  op_name_ = &name;
  op_live_bytes_ = op_peak_bytes_ = op_largest_bytes_ = op_operand_bytes_ = 0;
  trace_.clear();
  has_run_out_ = false;
  script_.reset();
  try {
    for (const auto& [storage, writes] : storages) hold(storage, writes, frame);
    frame.script_key = script_key(op_hash, frame);
    ExpectedRoom expected;
    if (tracker_.is_in_step()) {
      c10::SmallVector<TrackedTouch, 8> touches;
      for (const auto& operand : frame.operands) {
        touches.push_back({&operand.managed->track, operand.writes});
      }
      expected = tracker_.begin_op(op_hash, name, {touches.data(), touches.size()});
      frame.is_recorded = true;
      if (frame.can_be_cut) tracker_.mark_can_be_cut();
    } else {
      for (const auto& operand : frame.operands) tracker_.touch_outside(operand.managed->track);
    }
    acquire_retrying(frame, expected);
  } catch (const DeviceOutOfMemory& error) {
    abandon(frame);
    if (leave_to_heap(storages)) return;
    op_operand_bytes_ = distinct_bytes(storages, place_);
    throw_out_of_memory(error.what(), 0);
  } catch (const HostOutOfMemory& error) {
    abandon(frame);
    throw_host_full(error.what());
  } catch (...) {
    abandon(frame);
    throw;
  }
  for (auto& operand : frame.operands) {
    operand.block = operand.managed->block;
    if (operand.writes && operand.block.valid()) pool_->mark_written(operand.block);
    if (options_.strict_pointers) set_strict(operand, false);
  }
  note_peak();
}

void Arena::set_strict(OperatorFrame::Operand& operand, bool strict) {
  const ManagedStorage* managed = operand.managed;
  if (managed->is_dead || !managed->block.valid() || managed->user_pins > 0) return;
  if (strict) {
    forbid_pointers(managed->storage, kStrictText);
  } else {
    allow_pointers(managed->storage);
  }
}

void Arena::let_go(OperatorFrame& frame) noexcept {
  for (auto& operand : frame.operands) {
    ManagedStorage* managed = operand.managed;
    // A block that ended meanwhile took its pins along, and its number may be another's by now.
    if (operand.block.valid() && managed->block == operand.block) pool_->unpin(operand.block);
    if (--managed->frames == 0 && managed->is_dead) unmanage(managed);
  }
  for (ManagedStorage* managed : frame.streamed) {
    if (--managed->frames == 0 && managed->is_dead) unmanage(managed);
  }
  frame.operands.clear();
  frame.streamed.clear();
}

// A foreign storage that has grown where it is. The operator has run: what finds no room beside it
// is refused when the storage is next named.
void Arena::count_grown(ManagedStorage* managed) noexcept {
  try {
    pool_->reserve_foreign(managed->track.bytes);
  } catch (const std::exception&) {
    return;
  }
  managed->foreign_bytes = managed->track.bytes;
  managed->track.is_immovable = true;
}

void Arena::rebind(ManagedStorage* managed) {
  tracker_.forget(managed->track);
  const bool was_foreign = managed->foreign_bytes > 0;
  if (was_foreign) {
    pool_->release_foreign(managed->foreign_bytes);
    managed->foreign_bytes = 0;
    managed->track.is_immovable = false;
  }
  void* address = managed->storage->_mutable_data_ptr_no_checks().get();
  managed->track.bytes = place_.rounded(managed->storage->nbytes());
  if (address == nullptr) return;
  if (!holds_unbound(managed->storage)) {
    if (was_foreign) count_grown(managed);
    return;
  }
  bind(managed, pool_->find(address), address);
  --unbound_blocks_;
  if (tracker_.is_in_step()) tracker_.add_result(managed->track);
}

// Whether the operator gave the storage other memory: by resizing or setting it, or by ending what
// it shared with another (copy-on-write).
bool Arena::has_new_memory(const ManagedStorage& managed) const {
  if (managed.is_dead || managed.block.valid()) return false;
  if (managed.foreign_bytes == 0 || holds_unbound(managed.storage)) return true;
  return managed.foreign_bytes != place_.rounded(managed.storage->nbytes());  // grown where it is
}

void Arena::end_operator(OperatorFrame& frame,
                         const c10::SmallVectorImpl<c10::StorageImpl*>& results) {
  const Lock lock(*this);
  for (c10::StorageImpl* storage : results) {
    if (find(storage) != nullptr || !holds_unbound(storage)) continue;
    void* address = storage->_mutable_data_ptr_no_checks().get();
    ManagedStorage* managed = new_managed(storage);
    bind(managed, pool_->find(address), address);
    --unbound_blocks_;
    tracker_.add_result(managed->track);
    if (options_.strict_pointers) {
      OperatorFrame::Operand result{managed, managed->block, true};
      set_strict(result, true);
    }
  }
  for (auto& operand : frame.operands) {
    ManagedStorage* managed = operand.managed;
    if (has_new_memory(*managed)) rebind(managed);
    if (options_.strict_pointers) set_strict(operand, true);
  }
  if (frame.is_recorded) tracker_.end_op(op_peak_bytes_, op_largest_bytes_);
  for (auto& operand : frame.operands) {
    // Given memory outside of the arena by its operator: no longer ours.
    ManagedStorage* managed = operand.managed;
    if (!managed->block.valid() && managed->foreign_bytes == 0) managed->is_dead = true;
  }
  let_go(frame);
  if (!frame.is_recorded) return;
  if (overlaps_) run_ahead();
  evict_due();
}

void Arena::abandon_operator(OperatorFrame& frame) noexcept {
  const Lock lock(*this);
  for (auto& operand : frame.operands) {
    ManagedStorage* managed = operand.managed;
    // What never came in keeps its bytes below.
    if (!operand.block.valid() && managed->foreign_bytes == 0) continue;
    if (!has_new_memory(*managed)) continue;
    try {
      rebind(managed);
    } catch (const std::exception&) {
      // The storage keeps its memory as an unbound block.
    }
    managed->is_dead = !managed->block.valid();
  }
  abandon(frame);
}

void Arena::abandon(OperatorFrame& frame) noexcept {
  if (std::exchange(frame.is_recorded, false)) tracker_.end_op(op_peak_bytes_, op_largest_bytes_);
  let_go(frame);
}

void* Arena::allocate(std::size_t bytes) {
  const Lock lock(*this);
  const auto wanted = static_cast<std::int64_t>(bytes);
  const std::int64_t rounded = place_.rounded(bytes);
  try {
    device_->follow_current_stream();  // code that is not seen may have changed it
    pool::BlockId block = allocate_by_script(wanted);
    if (!block.valid()) block = pool_->allocate(wanted);
    if (scratch_.size() <= block.index()) scratch_.resize(block.index() + 1);
    scratch_[block.index()] = {serial_, rounded, trace_.begin(rounded)};
    ++unbound_blocks_;
    op_live_bytes_ += rounded;
    op_peak_bytes_ = std::max(op_peak_bytes_, op_live_bytes_);
    op_largest_bytes_ = std::max(op_largest_bytes_, rounded);
    note_peak();
    return pool_->address(block);
  } catch (const DeviceOutOfMemory& error) {
    trace_.begin(rounded);
    has_run_out_ = true;
    throw_out_of_memory(error.what(), rounded);
  } catch (const HostOutOfMemory& error) {
    throw_host_full(error.what());
  }
}

void Arena::deallocate(void* address) noexcept {
  std::shared_ptr<Arena> last;  // outlives the lock
  const Lock lock(*this);
  const pool::BlockId block = pool_->find(address);
  if (!block.valid()) return;
  const Scratch scratch = scratch_[block.index()];
  if (scratch.serial == serial_) {
    op_live_bytes_ -= scratch.bytes;
    // What a failing kernel gives back on its way out says nothing about the kernel.
    if (!has_run_out_) trace_.end(scratch.place);
  }
  end_block(block);
  --unbound_blocks_;
  if (keep_alive_ != nullptr && managed_.empty() && unbound_blocks_ == 0) {
    last = std::move(keep_alive_);
  }
}

double Arena::eviction_cost(pool::BlockId block) const {
  const auto* managed = static_cast<const ManagedStorage*>(pool_->owner(block));
  const auto host_copy =
      pool_->host_copy_valid(block) ? plan::HostCopy::kValid : plan::HostCopy::kStale;
  return tracker_.eviction_cost(managed->track, host_copy);
}

double Arena::slide_cost(std::int64_t bytes) const { return tracker_.slide_cost(bytes); }

void Arena::pin(c10::StorageImpl* storage) {
  const Lock lock(*this);
  try {
    device_->follow_current_stream();
    ManagedStorage* managed = find(storage);
    if (managed == nullptr) managed = manage(storage);
    // Foreign memory does not move anyway.
    if (managed == nullptr || !managed->block.valid()) return;
    if (managed->user_pins == 0) pool_->acquire({&managed->block, 1});
    ++managed->user_pins;
    // Its owner may write through the pointer from now on.
    pool_->mark_written(managed->block);
    allow_pointers(storage);
  } catch (const DeviceOutOfMemory& error) {
    throw_out_of_memory(error.what(), place_.rounded(storage->nbytes()));
  } catch (const HostOutOfMemory& error) {
    throw_host_full(error.what());
  }
}

void Arena::unpin(c10::StorageImpl* storage) {
  const Lock lock(*this);
  ManagedStorage* managed = find(storage);
  if (managed == nullptr || managed->user_pins == 0) return;
  device_->follow_current_stream();  // what was done through the pointer
  if (--managed->user_pins == 0) pool_->unpin(managed->block);
}

}  // namespace plimsoll::detail
