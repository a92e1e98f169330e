// SPDX-License-Identifier: Apache-2.0
#include "exec/lane.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "plimsoll/base/error.h"

namespace plimsoll::exec::detail {
namespace {

// Only the lane's owner adds, so that no locked instruction is needed.
void add(std::atomic<std::int64_t>& total, std::int64_t count) {
  total.store(total.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

}  // namespace

Lane::Lane(Shelf& shelf, const LaneKind& kind)
    : shelf_(shelf), kind_(kind), recorder_(shelf, kind) {
  front_.lane = this;
}

Lane::~Lane() = default;

void Lane::read_cursor() {
  if (front_.next == &kNoSlot) return;
  const auto cursor = static_cast<std::uint32_t>(front_.next - active_->replay_slots());
  // Every slot that the hit path went over was handed out.
  counts_.planned += cursor - cursor_;
  cursor_ = cursor;
}

void Lane::publish_cursor() {
  const bool is_fast = active_ != nullptr && !counts_.is_detached && !recorder_.is_recording();
  front_.next = is_fast ? active_->replay_slots() + cursor_ : &kNoSlot;
}

void* Lane::allocate(std::int64_t bytes, AllocationKey key) {
  if (bytes <= 0) return nullptr;
  read_cursor();
  void* place = serve(bytes, key);
  publish_cursor();
  awaits_note_ = place == nullptr;
  if (place != nullptr && recorder_.is_recording()) recorder_.note(place, bytes, key);
  return place;
}

void Lane::note(const void* pointer, std::int64_t bytes, AllocationKey key) {
  if (awaits_note_ && recorder_.is_recording()) recorder_.note(pointer, bytes, key);
  awaits_note_ = false;
}

// The cases of a request, in the order in which they are tried:
//  1. the next slot takes it;
//  2. nothing has gone wrong in this step and another plan continues with it: a step of another
//  kind;
//  3. a slot further on takes it: what lies between was dropped by the program;
//  4. a slot that was skipped takes it: the program's order has changed;
//  5. the next slot has its key and not its size: the block has grown, the slot is passed;
//  6. it is new.
void* Lane::serve(std::int64_t bytes, AllocationKey key) {
  if (counts_.is_detached) {
    ++counts_.missed;
    return nullptr;
  }
  if (active_ == nullptr && !change_plan(bytes, key)) {
    ++counts_.missed;
    return nullptr;
  }
  const auto end = static_cast<std::uint32_t>(active_->plan().size());
  if (cursor_ < end && active_->plan().accepts(cursor_, bytes, key))
    return take(cursor_, bytes, key);
  if (counts_.is_clean() && change_plan(bytes, key)) return take(cursor_, bytes, key);
  const bool has_grown = key != 0 && cursor_ < end && active_->plan().slots()[cursor_].key == key;
  if (has_grown) {
    active_->pass(cursor_++);
    miss();
    return nullptr;
  }
  const std::uint32_t window = static_cast<std::uint32_t>(shelf_.options().resync_window);
  for (std::uint32_t ahead = cursor_ + 1; ahead < end && ahead - cursor_ <= window; ++ahead) {
    if (!active_->plan().accepts(ahead, bytes, key)) continue;
    for (; cursor_ < ahead; ++cursor_) {
      active_->pass(cursor_);
      skipped_in_[cursor_] = step_;
      ++counts_.skipped;
    }
    return take(ahead, bytes, key);
  }
  if (void* place = take_behind(bytes, key)) return place;
  miss();
  return nullptr;
}

void Lane::miss() {
  ++counts_.missed;
  if (++miss_run_ < shelf_.options().detach_after) return;
  counts_.is_detached = true;
  add(totals_.detached, 1);
}

void* Lane::take(std::uint32_t slot, std::int64_t bytes, AllocationKey key) {
  cursor_ = slot + 1;
  miss_run_ = 0;
  if (active_->plan().slots()[slot].escapes) {
    ++counts_.escaped;
    return nullptr;
  }
  if (active_->clear(slot)) {
    ++counts_.planned;
    return active_->hand_out(slot, recorder_.is_recording() ? kLiveNoted : kLive);
  }
  // What the plan says is dead lives on: perhaps this is a step of another kind.
  cursor_ = slot;
  if (counts_.is_clean() && change_plan(bytes, key)) return take(slot, bytes, key);
  cursor_ = slot + 1;
  active_->pass(slot);
  skipped_in_[slot] = step_;  // it may become free while nothing else has come to its place
  ++counts_.refused;
  return nullptr;
}

void* Lane::take_behind(std::int64_t bytes, AllocationKey key) {
  if (counts_.skipped + counts_.refused == 0) return nullptr;
  const std::uint32_t window = static_cast<std::uint32_t>(shelf_.options().resync_window);
  const std::uint32_t first = cursor_ > window ? cursor_ - window : 0;
  for (std::uint32_t slot = cursor_; slot-- > first;) {
    if (skipped_in_[slot] != step_) continue;
    if (active_->plan().slots()[slot].escapes) continue;
    if (!active_->plan().accepts(slot, bytes, key) || !active_->is_untouched(slot, cursor_) ||
        !active_->clear(slot))
      continue;
    skipped_in_[slot] = 0;
    miss_run_ = 0;
    ++counts_.planned;
    return active_->hand_out(slot, recorder_.is_recording() ? kLiveNoted : kLive);
  }
  return nullptr;
}

bool Lane::change_plan(std::int64_t bytes, AllocationKey key) {
  const std::uint32_t at = active_ != nullptr ? cursor_ : 0;
  // The newest plan first.
  for (auto each = instances_.rbegin(); each != instances_.rend(); ++each) {
    PlanInstance* other = each->get();
    if (other == active_ || at >= other->plan().size() || !other->plan().accepts(at, bytes, key))
      continue;
    if (active_ != nullptr && !other->plan().begins_like(active_->plan(), at)) continue;
    if (other->was_tried_in(step_)) continue;
    activate(other, at);
    return true;
  }
  return false;
}

// Passes what is left of the active plan, so that its next use finds its order kept.
void Lane::leave_active() {
  if (active_ == nullptr) return;
  for (std::uint32_t slot = cursor_; slot < active_->plan().size(); ++slot) active_->pass(slot);
  active_ = nullptr;
}

void Lane::activate(PlanInstance* instance, std::uint32_t cursor) {
  leave_active();
  std::vector<ForeignBlock> foreign;
  for (const auto& other : instances_)
    if (other.get() != instance) other->list_live(foreign);
  for (const auto& other : leftovers_)
    if (other->arena() == instance->arena()) other->list_live(foreign);
  instance->enter(std::move(foreign), cursor);
  instance->note_tried_in(step_);
  active_ = instance;
  cursor_ = cursor;
  front_.cells = instance->cells();
  front_.predecessors = instance->plan().all_predecessors().data();
  skipped_in_.assign(instance->plan().size(), 0);
}

void Lane::step_mark() {
  if (end_usual_step()) return;
  read_cursor();
  refused_run_ = counts_.refused != 0 ? refused_run_ + 1 : 0;
  end_step();
  sweep();
  leave_haunted_arena();
  if (shelf_version_ != shelf_.version()) follow_shelf();
  publish_cursor();
}

// The two cases that need no thought: nothing happens on this queue; or every request was a hit, as
// in the step before, and nothing waits to be tidied up.
bool Lane::end_usual_step() {
  if (recorder_.is_recording() || !leftovers_.empty() || !old_arenas_.empty() ||
      shelf_version_ != shelf_.version())
    return false;
  if (active_ == nullptr) {
    if (counts_.missed != 0 || last_finished_ != nullptr || !recorder_.has_begun()) return false;
  } else {
    const ReplaySlot* first = active_->replay_slots();
    if (front_.next != first + active_->plan().size() || cursor_ != 0 ||
        last_finished_ != active_ || active_->follower() != active_)
      return false;
    add(totals_.planned, front_.next - first);
    active_->note_tried_in(++step_);
    refused_run_ = 0;
    front_.next = first;
  }
  recorder_.pass_step();
  count_step();
  return true;
}

void Lane::count_step() {
  if (kind_.queue == device::Queue::kCompute) add(totals_.steps, 1);
}

void Lane::add_totals(ReplayStatistics& sum) const {
  const auto get = [](const std::atomic<std::int64_t>& total) {
    return total.load(std::memory_order_relaxed);
  };
  sum.steps += get(totals_.steps);
  sum.planned += get(totals_.planned);
  sum.escaped += get(totals_.escaped);
  sum.missed += get(totals_.missed);
  sum.refused += get(totals_.refused);
  sum.skipped += get(totals_.skipped);
  sum.detached += get(totals_.detached);
}

void Lane::end_step() {
  const bool had_plan = active_ != nullptr;
  const bool is_finished = had_plan && cursor_ == active_->plan().size();
  const bool is_empty = cursor_ == 0 && counts_.is_clean();
  const bool is_on_plan = counts_.is_clean() && (is_finished || is_empty);
  count_step();
  add(totals_.planned, counts_.planned);
  add(totals_.escaped, counts_.escaped);
  add(totals_.missed, counts_.missed);
  add(totals_.refused, counts_.refused);
  add(totals_.skipped, counts_.skipped);
  // A step without any request (marks of other queues) leaves the cursor where it was: at the
  // start.
  if (had_plan && !is_finished && !is_empty)
    for (std::uint32_t slot = cursor_; slot < active_->plan().size(); ++slot) active_->pass(slot);
  cursor_ = 0;
  miss_run_ = 0;
  counts_ = {};
  ++step_;
  recorder_.end_step(is_on_plan);
  guess_next_plan(is_empty);
}

// Takes the plan that followed this one the last time.
void Lane::guess_next_plan(bool was_empty) {
  if (active_ == nullptr || was_empty) return;
  if (last_finished_ != nullptr) last_finished_->set_follower(active_);
  last_finished_ = active_;
  PlanInstance* next = active_->follower();
  if (next != nullptr && next != active_) {
    active_ = nullptr;  // the step has ended: all its slots were passed
    activate(next, 0);
  } else {
    active_->note_tried_in(step_);
  }
}

// Frees what only waited for its last block.
void Lane::sweep() {
  if (leftovers_.empty() && old_arenas_.empty()) return;
  // The active plan may look at cells that go now; those are dead.
  if (active_ != nullptr) active_->forget_dead_foreign();
  std::erase_if(leftovers_, [](const auto& instance) { return !instance->any_live(); });
  std::erase_if(old_arenas_, [&](const std::shared_ptr<Arena>& arena) {
    for (const auto& instance : leftovers_)
      if (instance->arena() == arena) return false;
    shelf_.retire_arena(*arena);
    return true;
  });
}

// Lets go of the arena, at once where nothing lives in it: the next one need not fit beside it.
void Lane::leave_arena() {
  active_ = nullptr;
  last_finished_ = nullptr;
  for (auto& instance : instances_) leftovers_.push_back(std::move(instance));
  instances_.clear();
  if (shared_arena_) old_arenas_.push_back(std::move(shared_arena_));
  use_arena(nullptr);
  sweep();
}

void Lane::use_arena(std::shared_ptr<Arena> arena) {
  shared_arena_ = std::move(arena);
  front_.base = shared_arena_ ? shared_arena_->base() : nullptr;
  front_.arena_bytes = shared_arena_ ? static_cast<std::uint64_t>(shared_arena_->bytes()) : 0;
  front_.places = shared_arena_ ? shared_arena_->places() : PlaceTable{};
}

// A block that was planned to die and lives on (the program kept it, once) blocks its place in
// every step. After a few such steps the lane moves to a fresh arena; the old one goes with its
// last block.
void Lane::leave_haunted_arena() {
  constexpr int kPatience = 8;
  constexpr std::size_t kMostOldArenas = 2;
  if (refused_run_ < kPatience || old_arenas_.size() >= kMostOldArenas) return;
  refused_run_ = 0;
  leave_arena();
  shelf_version_ = 0;
}

// Takes over the role's list of plans.
void Lane::follow_shelf() {
  shelf_version_ = shelf_.version();
  const std::vector<SharedPlan> plans = shelf_.plans(kind_);
  const auto is_wanted = [&](const std::unique_ptr<PlanInstance>& instance) {
    return std::find(plans.begin(), plans.end(), instance->shared_plan()) != plans.end();
  };
  last_finished_ = nullptr;
  for (const auto& instance : instances_) instance->set_follower(nullptr);
  if (!make_room(plans)) return;
  for (auto& instance : instances_) {
    if (is_wanted(instance)) continue;
    if (instance.get() == active_) active_ = nullptr;  // a step has just ended: all was passed
    leftovers_.push_back(std::move(instance));
  }
  std::erase(instances_, nullptr);
  for (const SharedPlan& plan : plans) {
    const bool is_there = std::any_of(instances_.begin(), instances_.end(), [&](const auto& each) {
      return each->shared_plan() == plan;
    });
    if (!is_there && shared_arena_)
      instances_.push_back(std::make_unique<PlanInstance>(plan, shared_arena_));
  }
  // More plans, more places: the table may have grown.
  for (const auto& instance : instances_) instance->bind();
  if (shared_arena_) front_.places = shared_arena_->places();
  sweep();
}

// Makes the arena large enough for all plans, or says that there is no memory for it.
bool Lane::make_room(const std::vector<SharedPlan>& plans) {
  std::int64_t bytes = 0;
  for (const SharedPlan& plan : plans) bytes = std::max(bytes, plan->arena_bytes());
  if (bytes <= static_cast<std::int64_t>(front_.arena_bytes)) return true;
  leave_arena();
  try {
    use_arena(shelf_.make_arena(bytes, kind_.queue));
  } catch (const std::exception& error) {
    spdlog::warn("planned allocation pauses, its arena of {} bytes does not fit: {}", bytes,
                 error.what());
    return false;
  }
  return true;
}

}  // namespace plimsoll::exec::detail
