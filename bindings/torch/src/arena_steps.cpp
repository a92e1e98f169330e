// SPDX-License-Identifier: Apache-2.0
// The arena's steps and the moves they plan, its report and its end.
#include <algorithm>
#include <chrono>
#include <string>

#include "plimsoll/base/error.h"

#include "arena.h"
#include "host_allocator.h"
#include "pointer_checks.h"

namespace plimsoll::detail {
namespace {

constexpr const char* kLeftBehindText =
    "Plimsoll: this tensor's bytes found no room when its session ended, neither in LibTorch's own "
    "memory nor in the arena. Copy what is to outlive a session elsewhere before it ends.";

}  // namespace

std::int64_t Arena::now_ns() const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - step_start_ns_;
}

void Arena::begin_step() {
  const Guard lock(*this);
  drop_expired_foreign();
  // Between steps a program may write through raw pointers (a batch filled by memcpy), unseen.
  pool_->mark_all_written();
  last_step_.shortage_bytes = 0;
  last_step_.shortage_op.clear();
  const pool::PoolStatistics stats = pool_->stats();
  step_out_start_ = stats.offloaded_bytes;
  step_in_start_ = stats.prefetched_bytes;
  step_slid_start_ = stats.slid_bytes;
  events_.clear();
  step_start_ns_ = 0;
  step_start_ns_ = now_ns();
  op_name_ = nullptr;
  tracker_.begin_step();
}

bool Arena::drop_expired_foreign() noexcept {
  std::vector<ManagedStorage*> expired;
  for (const auto& [storage, managed] : managed_) {
    if (managed->foreign_bytes > 0 && managed->frames == 0 && managed->reference.expired()) {
      expired.push_back(managed.get());
    }
  }
  for (ManagedStorage* managed : expired) unmanage(managed);
  return !expired.empty();
}

std::int64_t Arena::movable_budget_bytes() const {
  return options_.budget_bytes - pool_->stats().foreign_bytes;
}

void Arena::end_step(bool is_complete) {
  const Guard lock(*this);
  op_name_ = nullptr;
  drop_expired_foreign();
  const pool::PoolStatistics stats = pool_->stats();
  last_step_.offloaded_bytes = stats.offloaded_bytes - step_out_start_;
  last_step_.prefetched_bytes = stats.prefetched_bytes - step_in_start_;
  last_step_.slid_bytes = stats.slid_bytes - step_slid_start_;
  last_step_.persistent_bytes = 0;
  for (const auto& [storage, managed] : managed_) {
    last_step_.persistent_bytes += managed->track.bytes;
  }
  // The plan counts bytes, not addresses: what it leaves free is there so that holes need not be
  // joined by slides at every turn. Measured: with no slack the slides of a tight ResNet-50 step
  // move five times what the plan moves, with 3 % less than half of it.
  constexpr std::int64_t kSlackDivisor = 33;
  const std::int64_t movable = movable_budget_bytes();
  tracker_.end_step(is_complete, movable - movable / kSlackDivisor);
  const auto known = tracker_.last_known();
  if (kIsDebugBuild) pool_->check_invariants();
  last_step_.planned_bytes = known != nullptr ? known->swaps().moved_bytes() : 0;
  if (!is_complete) return;
  const StepRecording& recording = tracker_.recording();
  last_step_.operators = recording.op_count();
  const std::int64_t largest = recording.largest_op();
  if (largest < 0) return;
  last_step_.lower_bound_bytes = recording.need_bytes(largest) + stats.foreign_bytes;
  last_step_.pinned_by = *recording.ops[static_cast<std::size_t>(largest)].name + " (operator " +
                         std::to_string(largest) + ")";
}

void Arena::evict_due() noexcept {
  // One by one, when the plan wants them gone: holes are then there when they are asked for, and
  // need not be planned for under pressure.
  try {
    for (Track* track : tracker_.due()) {
      const pool::BlockId block = static_cast<OwnedTrack*>(track)->owner->block;
      if (!block.valid() || pool_->pins(block) > 0) continue;
      if (pool_->residence(block) == pool::Residence::kResident) pool_->evict(block);
    }
  } catch (const Error&) {
    // The operator has run; what could not leave now is asked to leave when its room is needed.
  }
}

void Arena::run_ahead() noexcept {
  const auto block_of = [](Track* track) {
    return track == nullptr ? pool::BlockId() : static_cast<OwnedTrack*>(track)->owner->block;
  };
  try {
    for (Track* track : tracker_.leaving()) {
      if (block_of(track).valid()) pool_->begin_evict(block_of(track));
    }
    pool_->poll();
    for (Track* track : tracker_.returning()) {
      const pool::BlockId block = block_of(track);
      if (!block.valid() || pool_->begin_fetch(block)) continue;
      if (asks_back_ && pool_->residence(block) == pool::Residence::kHost)
        tracker_.ask_again(*track);
    }
  } catch (const Error&) {
    // The operator has run; what could not be moved ahead is moved when it is needed, and fails
    // there if it fails again.
  }
}

void Arena::note_peak() {
  const std::int64_t peak = pool_->stats().peak_bytes;
  if (peak <= seen_peak_bytes_) return;
  seen_peak_bytes_ = peak;
  peak_op_ = op_name_ != nullptr ? *op_name_ : "";
}

void Arena::reset_peak() {
  const Guard lock(*this);
  pool_->reset_peak();
  seen_peak_bytes_ = pool_->stats().peak_bytes;
  peak_op_.clear();
}

SessionReport Arena::report() const {
  const Guard lock(*this);
  const pool::PoolStatistics stats = pool_->stats();
  SessionReport report = last_step_;
  report.budget_bytes = options_.budget_bytes;
  report.peak_bytes = stats.peak_bytes;
  report.peak_waste_bytes = stats.peak_waste_bytes;
  report.peak_op = peak_op_;
  report.foreign_bytes = stats.foreign_bytes;
  report.host_bytes = stats.host_bytes;
  report.file_bytes = stats.file_bytes;
  report.steps = tracker_.steps();
  report.steps_on_sequence = tracker_.steps_on_sequence();
  report.known_sequences = static_cast<std::int64_t>(tracker_.known_steps());
  report.plans_made = tracker_.plans_made();
  return report;
}

const std::shared_ptr<const KnownStep> Arena::last_known() const {
  const Guard lock(*this);
  return tracker_.last_known();
}

void Arena::check_fits(const std::string& name, std::int64_t bytes) {
  const Guard lock(*this);
  if (bytes <= movable_budget_bytes()) return;
  op_name_ = &name;
  op_operand_bytes_ = bytes;
  op_live_bytes_ = 0;
  throw_out_of_memory("the largest part of it does not fit into the budget of " +
                          std::to_string(options_.budget_bytes) + " bytes",
                      0);
}

bool Arena::is_beyond(std::int64_t bytes) const {
  if (bytes <= options_.budget_bytes / 2) return false;  // the usual case, without the lock
  const Guard lock(*this);
  return bytes > movable_budget_bytes();
}

bool Arena::holds(c10::StorageImpl* storage) const {
  const Guard lock(*this);
  const ManagedStorage* managed = find(storage);
  return managed != nullptr && managed->foreign_bytes == 0;
}

std::vector<SessionEvent> Arena::take_events() {
  const Guard lock(*this);
  std::vector<SessionEvent> events = events_;
  std::stable_sort(events.begin(), events.end(), [](const SessionEvent& a, const SessionEvent& b) {
    return a.begin_ns < b.begin_ns;
  });
  return events;
}

void Arena::add_event(SessionEvent event) {
  const Guard lock(*this);
  events_.push_back(std::move(event));
}

void Arena::give_back(ManagedStorage* managed) {
  if (managed->foreign_bytes > 0) {
    unmanage(managed);
    return;
  }
  // A storage that is dying on another thread comes to storage_ended() by itself.
  c10::intrusive_ptr<c10::StorageImpl> keep = managed->reference.lock();
  if (keep == nullptr) return;
  c10::StorageImpl* storage = managed->storage;
  // Someone outside of LibTorch holds its address (a NumPy array): it stays, and the arena with it.
  if (managed->user_pins > 0 && !storage->resizable()) return;
  if (managed->block.valid()) {
    c10::DataPtr memory = device_->allocate_outside(storage->nbytes());
    if (managed->user_pins > 0) pool_->unpin(managed->block);
    if (join_streams(managed->block)) streams_of_blocks_.erase(managed->block.value());
    pool_->release_to(managed->block, memory.get(), device_->side());
    managed->block = {};
    storage->_mutable_data_ptr_no_checks().release_context();
    storage->set_data_ptr_noswap(std::move(memory));
    allow_pointers(storage);
  }
  dropped_later_.push_back(std::move(keep));
  unmanage(managed);
}

// What could not leave the arena when the session ended is to stand in it from now on.
void Arena::keep_in_reach(ManagedStorage* managed) noexcept {
  if (!managed->block.valid()) return;
  try {
    pool_->acquire({&managed->block, 1});
  } catch (const std::exception&) {
    forbid_pointers(managed->storage, kLeftBehindText);
  }
}

void Arena::retire() noexcept {
  const Lock lock(*this);
  try {
    device_->follow_current_stream();
  } catch (const std::exception&) {
    // The device is broken; so is what is on it.
  }
  pool_->synchronize();
  std::vector<ManagedStorage*> all;
  for (const auto& [storage, managed] : managed_) all.push_back(managed.get());
  for (ManagedStorage* managed : all) {
    // A read that failed once may work the next time. What has no room on the heap stays in the
    // arena, which then lives as long as it does.
    for (int attempt = 0; attempt < 3; ++attempt) {
      try {
        give_back(managed);
        break;
      } catch (const std::exception&) {
        continue;
      }
    }
  }
  for (const auto& [storage, managed] : managed_) keep_in_reach(managed.get());
  pool_->synchronize();  // so that whoever ends the arena need not
  if (!managed_.empty() || unbound_blocks_ > 0) keep_alive_ = shared_from_this();
}

}  // namespace plimsoll::detail
