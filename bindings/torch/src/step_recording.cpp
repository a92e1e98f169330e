// SPDX-License-Identifier: Apache-2.0
#include "step_recording.h"

#include <algorithm>
#include <utility>

#include "plimsoll/plan/next_use.h"

namespace plimsoll::detail {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

// Whether the slot is one and the same storage in every step: it was there before, under the same
// number where the step before is known, and it stays.
bool is_persistent(const RecordedSlot& slot, Slot number) {
  return slot.existed && slot.is_alive_at_end &&
         (slot.previous == kNoSlot || slot.previous == number);
}

plan::SwapStorageId storage_id(Slot slot) { return plan::SwapStorageId(slot); }
plan::SwapOpId op_id(std::int64_t op) { return plan::SwapOpId(static_cast<std::int32_t>(op)); }

// A storage held over from the step before is the planner's instance of that step's slot, if the
// slot is a transient of this step too; otherwise it is left out, and its bytes are small or its
// step unusual.
bool is_held_over(const StepRecording& recording, const RecordedSlot& slot) {
  return slot.existed && !slot.is_alive_at_end && slot.previous != kNoSlot &&
         static_cast<std::size_t>(slot.previous) < recording.slots.size() &&
         !recording.slots[static_cast<std::size_t>(slot.previous)].existed &&
         recording.slots[static_cast<std::size_t>(slot.previous)].is_alive_at_end;
}

void add_releases(const StepRecording& recording, plan::AccessSequenceBuilder& builder) {
  const std::int64_t last = recording.op_count() - 1;
  for (std::size_t i = 0; i < recording.slots.size(); ++i) {
    const Slot number = static_cast<Slot>(i);
    if (is_persistent(recording.slots[i], number)) continue;
    if (recording.slots[i].is_alive_at_end) {
      builder.release_after(storage_id(number), op_id(last));
    } else if (recording.slots[i].released_after >= 0) {
      builder.release_after(storage_id(number), op_id(recording.slots[i].released_after));
    }
  }
  // Later calls win: what the step before left behind and this step freed lives into this step.
  for (std::size_t i = 0; i < recording.slots.size(); ++i) {
    if (!is_held_over(recording, recording.slots[i]) || recording.slots[i].released_after < 0)
      continue;
    builder.release_after(storage_id(recording.slots[i].previous),
                          op_id(recording.slots[i].released_after), plan::Lap::kPreviousStep);
  }
  for (const RecordedRelease& release : recording.releases) {
    if (release.released_after < 0 ||
        static_cast<std::size_t>(release.previous) >= recording.slots.size()) {
      continue;
    }
    const RecordedSlot& slot = recording.slots[static_cast<std::size_t>(release.previous)];
    if (slot.existed || !slot.is_alive_at_end) continue;
    builder.release_after(storage_id(release.previous), op_id(release.released_after),
                          plan::Lap::kPreviousStep);
  }
}

// A plan for a little less is a plan for this budget too, and sometimes the better one: the planner
// is a heuristic, and not monotone to the last percent.
plan::SwapPlan best_swaps(const plan::AccessSequence& sequence, std::int64_t budget_bytes) {
  plan::SwapPlan best = plan::plan_swaps(sequence, budget_bytes);
  for (const std::int64_t divisor : {200, 100, 50}) {
    if (!best.is_feasible || best.moved_bytes() == 0) break;
    plan::SwapPlan other = plan::plan_swaps(sequence, budget_bytes - budget_bytes / divisor);
    if (other.is_feasible && other.moved_bytes() < best.moved_bytes()) best = std::move(other);
  }
  return best;
}

}  // namespace

void StepRecording::clear() {
  ops.clear();
  prefix.clear();
  touches.clear();
  slots.clear();
  releases.clear();
}

std::int64_t StepRecording::need_bytes(std::int64_t op) const {
  const RecordedOp& recorded = ops[static_cast<std::size_t>(op)];
  return recorded.operand_bytes + recorded.room_bytes;
}

std::int64_t StepRecording::largest_op() const {
  std::int64_t largest = -1;
  for (std::int64_t op = 0; op < op_count(); ++op) {
    if (ops[static_cast<std::size_t>(op)].can_be_cut) continue;
    if (largest < 0 || need_bytes(op) > need_bytes(largest)) largest = op;
  }
  return largest;
}

std::uint64_t StepRecording::lifetimes_hash() const {
  std::uint64_t hash = 0;
  for (const RecordedOp& op : ops)
    hash = mix(mix(hash, static_cast<std::uint64_t>(op.room_bytes)),
               static_cast<std::uint64_t>(op.largest_bytes));
  for (const RecordedSlot& slot : slots) {
    hash = mix(hash, (slot.existed ? 1U : 0U) | (slot.is_alive_at_end ? 2U : 0U) |
                         (slot.is_immovable ? 4U : 0U));
    hash = mix(hash, static_cast<std::uint64_t>(slot.released_after));
    hash = mix(hash, static_cast<std::uint64_t>(slot.previous));
  }
  for (const RecordedRelease& release : releases) {
    hash = mix(mix(hash, static_cast<std::uint64_t>(release.previous)),
               static_cast<std::uint64_t>(release.released_after));
  }
  return hash;
}

plan::AccessSequence StepRecording::to_sequence() const {
  plan::AccessSequenceBuilder builder;
  for (const RecordedOp& op : ops) builder.add_op(op.room_bytes - op.results_bytes, *op.name);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const bool persists = is_persistent(slots[i], static_cast<Slot>(i));
    // A slot that stands for the previous step's instance of another has no storage of its own.
    const std::int64_t bytes = is_held_over(*this, slots[i]) ? 0 : slots[i].bytes;
    builder.add_storage(
        bytes, persists ? plan::StorageKind::kPersistent : plan::StorageKind::kTransient,
        slots[i].is_immovable ? plan::Mobility::kImmovable : plan::Mobility::kMovable);
  }
  for (std::int64_t op = 0; op < op_count(); ++op) {
    const std::size_t end =
        op + 1 < op_count() ? ops[static_cast<std::size_t>(op) + 1].first_touch : touches.size();
    for (std::size_t t = ops[static_cast<std::size_t>(op)].first_touch; t < end; ++t) {
      const auto access = touches[t].writes ? plan::Access::kWrite : plan::Access::kRead;
      const RecordedSlot& slot = slots[static_cast<std::size_t>(touches[t].slot)];
      builder.access(op_id(op), storage_id(touches[t].slot), access);
      if (is_held_over(*this, slot)) {
        builder.access(op_id(op), storage_id(slot.previous), access, plan::Lap::kPreviousStep);
      }
    }
  }
  add_releases(*this, builder);
  return std::move(builder).build();
}

KnownStep::KnownStep(StepRecording recording, std::optional<std::int64_t> plan_budget_bytes)
    : recording_(std::move(recording)),
      lifetimes_hash_(recording_.lifetimes_hash()),
      sequence_(recording_.to_sequence()),
      is_planned_(plan_budget_bytes.has_value()),
      swaps_(is_planned_ ? best_swaps(sequence_, *plan_budget_bytes) : plan::SwapPlan()) {
  const std::size_t count = recording_.ops.size();
  std::vector<std::pair<Slot, std::int64_t>> uses;
  for (std::size_t op = 0; op < count; ++op) {
    const std::size_t end =
        op + 1 < count ? recording_.ops[op + 1].first_touch : recording_.touches.size();
    for (std::size_t t = recording_.ops[op].first_touch; t < end; ++t) {
      uses.emplace_back(recording_.touches[t].slot, static_cast<std::int64_t>(op));
    }
  }
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  first_use_.assign(recording_.slots.size() + 1, 0);
  for (const auto& [slot, op] : uses) {
    ++first_use_[static_cast<std::size_t>(slot) + 1];
    uses_.push_back(op);
  }
  for (std::size_t i = 1; i < first_use_.size(); ++i) first_use_[i] += first_use_[i - 1];

  leaving_.resize(count);
  returning_.resize(count);
  due_.resize(count);
  for (const plan::SwapEviction& eviction : swaps_.evictions) {
    const Slot slot = eviction.storage.value();
    // Before the first operator is after the last one of the step before.
    const std::int64_t leave =
        eviction.evict_after >= 0 ? eviction.evict_after : static_cast<std::int64_t>(count) - 1;
    leaving_[index(leave)].push_back(slot);
    if (eviction.evict_after >= 0) {
      due_[index((eviction.leave_before + static_cast<std::int64_t>(count) - 1) %
                 static_cast<std::int64_t>(count))]
          .push_back(slot);
    }
    if (eviction.copies_in) {
      returning_[index(eviction.return_from % static_cast<std::int64_t>(count))].push_back(slot);
    }
  }
}

std::int64_t KnownStep::ops_until_use(Slot slot, std::int64_t op, bool lives_on) const {
  const auto number = static_cast<std::size_t>(slot);
  if (number + 1 >= first_use_.size()) return plan::kNeverUsed;
  const auto begin = uses_.begin() + static_cast<std::ptrdiff_t>(first_use_[number]);
  const auto end = uses_.begin() + static_cast<std::ptrdiff_t>(first_use_[number + 1]);
  const auto next = std::upper_bound(begin, end, op);
  if (next != end) return *next - op;
  if (!lives_on || begin == end) return plan::kNeverUsed;
  return recording_.op_count() - op + *begin;
}

std::shared_ptr<const KnownStep> StepBook::find(
    std::int64_t op, std::uint64_t prefix,
    const std::shared_ptr<const KnownStep>& preferred) const {
  const auto fits = [&](const KnownStep& step) {
    return op < step.recording().op_count() &&
           step.recording().prefix[static_cast<std::size_t>(op)] == prefix;
  };
  if (preferred != nullptr && fits(*preferred)) return preferred;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (fits(**step)) return *step;
  }
  return nullptr;
}

std::shared_ptr<const KnownStep> StepBook::learn(const StepRecording& recording,
                                                 std::int64_t plan_budget_bytes) {
  const std::uint64_t lifetimes = recording.lifetimes_hash();
  std::size_t variants = 0;
  auto oldest = steps_.end(), newest = steps_.end(), same = steps_.end();
  for (auto step = steps_.begin(); step != steps_.end(); ++step) {
    if ((*step)->recording().op_count() != recording.op_count()) continue;
    if ((*step)->recording().prefix.back() != recording.prefix.back()) continue;
    if (variants++ == 0) oldest = step;
    newest = step;
    if ((*step)->lifetimes_hash() == lifetimes) same = step;
  }
  new_in_a_row_ = variants == 0 ? new_in_a_row_ + 1 : 0;
  auto taken = steps_.end();
  if (same != steps_.end()) {
    if ((*same)->is_planned()) taken = same;
  } else if (variants >= kMostVariants &&
             std::exchange(refused_lifetimes_, lifetimes) != lifetimes) {
    taken = newest;
  }
  std::shared_ptr<const KnownStep> step;
  if (taken != steps_.end()) {
    step = *taken;
    steps_.erase(taken);
  } else {
    const auto full = variants >= kMostVariants ? oldest : steps_.end();
    const auto replaced = same != steps_.end() ? same : full;
    if (replaced != steps_.end()) steps_.erase(replaced);
    std::optional<std::int64_t> budget;
    if (new_in_a_row_ <= kNewStepsPlanned) budget = plan_budget_bytes;
    step = std::make_shared<KnownStep>(recording, budget);
    if (step->is_planned()) ++plans_made_;
  }
  steps_.push_back(step);
  if (steps_.size() > kMostSteps) steps_.erase(steps_.begin());
  return step;
}

}  // namespace plimsoll::detail
