// SPDX-License-Identifier: Apache-2.0
#include "step_tracker.h"

#include <algorithm>
#include <utility>

namespace plimsoll::detail {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
  return hash ^ (hash >> 28);
}

Track* at_slot(const std::vector<Track*>& tracks, Slot slot) {
  const auto index = static_cast<std::size_t>(slot);
  return slot >= 0 && index < tracks.size() ? tracks[index] : nullptr;
}

}  // namespace

void StepTracker::begin_step() {
  ++step_;
  is_in_step_ = true;
  has_diverged_ = always_least_recent_;
  recording_.clear();
  largest_need_bytes_ = 0;
  hash_ = 0;
  previous_tracks_.swap(tracks_);
  tracks_.clear();
  asked_.clear();
  // The best guess until the first operator has been seen: the same again.
  following_ = has_diverged_ ? nullptr : last_known_;
}

void StepTracker::end_step(bool is_complete, std::int64_t plan_budget_bytes) {
  is_in_step_ = false;
  for (Track* track : tracks_) {
    if (track != nullptr) track->is_leaving = track->is_leaving && following_ != nullptr;
  }
  if (!is_complete || recording_.ops.empty() || always_least_recent_) {
    following_ = last_known_ = nullptr;
    return;
  }
  const bool followed =
      following_ != nullptr && following_->recording().op_count() == recording_.op_count();
  if (followed) ++steps_on_sequence_;
  last_known_ = book_.learn(recording_, plan_budget_bytes);
  following_ = nullptr;
}

void StepTracker::follow() {
  if (has_diverged_) return;
  following_ = book_.find(current_op(), hash_, following_);
  has_diverged_ = following_ == nullptr;
}

Slot StepTracker::touch(Track& track, bool writes) {
  if (track.step != step_) {
    RecordedSlot slot;
    slot.bytes = track.bytes;
    slot.is_immovable = track.is_immovable;
    // Known to the tracker from before this step: a storage made or adopted in it has step -1.
    slot.existed = track.step >= 0;
    slot.previous = track.step == step_ - 1 ? track.slot : kNoSlot;
    // From now on it goes by this step's slot alone.
    if (slot.previous != kNoSlot && at_slot(previous_tracks_, slot.previous) == &track) {
      previous_tracks_[static_cast<std::size_t>(slot.previous)] = nullptr;
    }
    track.step = step_;
    track.slot = static_cast<Slot>(recording_.slots.size());
    recording_.slots.push_back(slot);
    tracks_.push_back(&track);
  }
  track.last_use = ++clock_;
  track.is_leaving = false;
  if (!asked_.empty())
    std::erase_if(asked_, [&](const Asked& asked) { return asked.slot == track.slot; });
  recording_.touches.push_back({track.slot, writes});
  hash_ = mix(hash_, static_cast<std::uint64_t>(track.slot) * 2 + (writes ? 1 : 0));
  hash_ = mix(hash_, static_cast<std::uint64_t>(track.bytes));
  return track.slot;
}

ExpectedRoom StepTracker::begin_op(std::uint64_t op_hash, const std::string& name,
                                   std::span<const TrackedTouch> touches) {
  RecordedOp op;
  op.first_touch = recording_.touches.size();
  op.name = &name;
  recording_.ops.push_back(op);
  hash_ = mix(hash_, op_hash);
  std::int64_t operand_bytes = 0;
  for (const TrackedTouch& touched : touches) {
    touch(*touched.track, touched.writes);
    operand_bytes += touched.track->bytes;
  }
  recording_.ops.back().operand_bytes = operand_bytes;
  // The hash up to here is that of an operator whose results are still to come; the known step's
  // operator is the same if the hash after its results is. Its room is looked up on trust: a wrong
  // guess costs a few moves, never bits.
  if (following_ == nullptr || current_op() >= following_->recording().op_count()) return {};
  const RecordedOp& known = following_->recording().ops[static_cast<std::size_t>(current_op())];
  if (known.operand_bytes != operand_bytes || *known.name != name) return {};
  return {true, known.room_bytes, known.largest_bytes};
}

void StepTracker::add_result(Track& track) {
  touch(track, true);
  recording_.ops.back().results_bytes += track.bytes;
}

void StepTracker::end_op(std::int64_t room_bytes, std::int64_t largest_bytes) {
  RecordedOp& op = recording_.ops.back();
  op.room_bytes = std::max(room_bytes, op.results_bytes);
  op.largest_bytes = largest_bytes;
  if (!op.can_be_cut)
    largest_need_bytes_ = std::max(largest_need_bytes_, recording_.need_bytes(current_op()));
  recording_.prefix.push_back(hash_);
  follow();
  if (following_ == nullptr) return;
  for (const Slot slot : following_->leaving(current_op())) {
    if (Track* track = track_of(slot)) track->is_leaving = true;
  }
}

Track* StepTracker::track_of(Slot slot) const {
  if (Track* track = at_slot(tracks_, slot)) return track;
  // Not touched yet in this step: the storage that had this slot in the step before, if that was
  // the same step.
  const bool not_touched = static_cast<std::size_t>(slot) >= tracks_.size();
  return not_touched && following_ == last_known_ ? at_slot(previous_tracks_, slot) : nullptr;
}

std::vector<Track*> StepTracker::leaving() const {
  std::vector<Track*> tracks;
  if (following_ == nullptr || recording_.ops.empty()) return tracks;
  for (const Slot slot : following_->leaving(current_op())) tracks.push_back(track_of(slot));
  return tracks;
}

std::vector<Track*> StepTracker::due() const {
  std::vector<Track*> tracks;
  if (following_ == nullptr || recording_.ops.empty()) return tracks;
  for (const Slot slot : following_->due(current_op())) {
    Track* track = track_of(slot);
    // Touched since it was let go: it is another gap's turn.
    if (track != nullptr && track->is_leaving) tracks.push_back(track);
  }
  return tracks;
}

std::vector<Track*> StepTracker::returning() {
  std::vector<Track*> tracks;
  if (following_ == nullptr || recording_.ops.empty()) return tracks;
  std::erase_if(asked_, [&](const Asked& asked) {
    if (asked.from_op > current_op()) return false;
    tracks.push_back(track_of(asked.slot));
    return true;
  });
  const std::int64_t next = (current_op() + 1) % following_->recording().op_count();
  for (const Slot slot : following_->returning(next)) tracks.push_back(track_of(slot));
  return tracks;
}

void StepTracker::note_eviction(const Track& track) {
  if (!is_in_step_ || following_ == nullptr || track.is_leaving) return;
  const bool is_of_step =
      track.step == step_ || (track.step == step_ - 1 && following_ == last_known_);
  if (!is_of_step) return;
  // So long before its use that the copy may be over, so late that it takes no other's room.
  constexpr std::int64_t kLead = 8;
  const std::int64_t distance = following_->ops_until_use(track.slot, current_op(), false);
  if (distance == plan::kNeverUsed) return;
  asked_.push_back({track.slot, std::max(current_op() + distance - kLead, current_op())});
}

void StepTracker::forget(Track& track) {
  if (track.step == step_ && track.slot != kNoSlot) {
    if (at_slot(tracks_, track.slot) == &track) {
      tracks_[static_cast<std::size_t>(track.slot)] = nullptr;
    }
    if (is_in_step_) {
      RecordedSlot& slot = recording_.slots[static_cast<std::size_t>(track.slot)];
      slot.is_alive_at_end = false;
      slot.released_after = current_op();
    }
  } else if (track.step == step_ - 1 && is_in_step_) {
    if (at_slot(previous_tracks_, track.slot) == &track) {
      previous_tracks_[static_cast<std::size_t>(track.slot)] = nullptr;
    }
    recording_.releases.push_back({track.slot, current_op()});
  }
  track.step = -1;
  track.slot = kNoSlot;
}

double StepTracker::slide_cost(std::int64_t bytes) const {
  // As if it brought room until the same operator of the next step, at a third of its
  // bytes: dearer than what the plan moves anyway, cheaper than to evict what this step still uses.
  constexpr double kFactor = 0.35;
  constexpr double kUnknownStep = 1000;
  const double ops = following_ != nullptr ? static_cast<double>(following_->recording().op_count())
                                           : kUnknownStep;
  return kFactor * static_cast<double>(bytes) / ops;
}

double StepTracker::eviction_cost(const Track& track, plan::HostCopy host_copy) const {
  // Below any real cost, and larger for more bytes: what the plan lets go leaves first, the
  // smallest sufficient part of it.
  constexpr double kPlanned = 1e-15;
  if (following_ != nullptr) {
    const bool touched = track.step == step_;
    const bool provisional = !touched && track.step == step_ - 1 && following_ == last_known_;
    if (track.is_leaving) return kPlanned * static_cast<double>(track.bytes);
    const auto& slots = following_->recording().slots;
    if ((touched || provisional) && static_cast<std::size_t>(track.slot) < slots.size()) {
      const RecordedSlot& slot = slots[static_cast<std::size_t>(track.slot)];
      const bool lives_on = slot.existed && slot.is_alive_at_end;
      const std::int64_t distance =
          following_->ops_until_use(track.slot, std::max<std::int64_t>(current_op(), -1), lives_on);
      // Never used again, and yet the plan keeps it: it will be freed soon, for nothing.
      const std::int64_t horizon = 2 * following_->recording().op_count();
      return plan::next_use_cost(track.bytes, std::clamp<std::int64_t>(distance, 1, horizon),
                                 host_copy);
    }
    // Not of this step at all, so far: as if it were used a step from now.
    return plan::next_use_cost(track.bytes, following_->recording().op_count(), host_copy);
  }
  return plan::least_recent_cost(track.bytes, clock_ - track.last_use, host_copy);
}

}  // namespace plimsoll::detail
