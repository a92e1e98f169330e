// SPDX-License-Identifier: Apache-2.0
// Shares nothing with the planner: it plays the step operator by operator, storage by storage.
#include <map>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/swap_plan.h"

namespace plimsoll::plan {
namespace {

[[noreturn]] void reject(const std::string& problem) {
  throw InvalidArgument("swap plan: " + problem);
}

class SwapPlanChecker {
 public:
  SwapPlanChecker(const AccessSequence& sequence, std::int64_t budget_bytes, const SwapPlan& plan)
      : sequence_(sequence), budget_bytes_(budget_bytes), plan_(plan), n_(sequence.op_count()) {}

  void check() {
    check_minimum();
    if (!plan_.is_feasible) {
      if (!plan_.evictions.empty()) reject("it is infeasible and lists evictions");
      return;
    }
    check_order();
    for (std::int64_t s = 0; s < sequence_.storage_count(); ++s)
      play_storage(SwapStorageId(static_cast<std::size_t>(s)));
    if (played_ != plan_.evictions.size()) reject("an eviction follows no access of its storage");
    check_sums();
  }

 private:
  using Bytes = std::vector<std::int64_t>;

  Bytes per_op() const { return Bytes(static_cast<std::size_t>(n_)); }
  std::size_t slot(std::int64_t position) const { return static_cast<std::size_t>(position % n_); }

  Bytes scratch() const {
    Bytes bytes = per_op();
    for (std::size_t op = 0; op < bytes.size(); ++op)
      bytes[op] = sequence_.scratch_bytes(SwapOpId(op));
    return bytes;
  }

  void check_minimum() {
    Bytes needed = scratch();
    for (std::int64_t s = 0; s < sequence_.storage_count(); ++s) {
      const SwapStorageId storage(static_cast<std::size_t>(s));
      const StorageLife& life = sequence_.life(storage);
      if (life.mobility == Mobility::kImmovable)
        for (std::int64_t p = life.birth; p <= life.death; ++p) needed[slot(p)] += life.size_bytes;
      else
        for (const TimedAccess& access : sequence_.accesses(storage))
          needed[slot(access.position)] += life.size_bytes;
    }
    std::size_t most = 0;
    for (std::size_t op = 1; op < needed.size(); ++op)
      if (needed[op] > needed[most]) most = op;
    if (plan_.minimum_budget_bytes != needed[most])
      reject(fmt::format("it calls {} the least budget; {} is", plan_.minimum_budget_bytes,
                         needed[most]));
    if (plan_.pinned_by != SwapOpId(most))
      reject(fmt::format("it says operator {} pins the least budget; {} does",
                         plan_.pinned_by.value(), most));
    if (plan_.is_feasible != (budget_bytes_ >= needed[most]))
      reject(fmt::format("it is feasible: {}; budget {}, least {}", plan_.is_feasible,
                         budget_bytes_, needed[most]));
  }

  void check_order() {
    for (std::size_t k = 0; k < plan_.evictions.size(); ++k) {
      const SwapEviction& eviction = plan_.evictions[k];
      if (!eviction.storage.valid() || eviction.storage.value() >= sequence_.storage_count())
        reject(fmt::format("eviction {} is of unknown storage {}", k, eviction.storage.value()));
      const bool is_previous = eviction.lap == Lap::kPreviousStep;
      const std::pair key(eviction.storage.value(), eviction.evict_after + (is_previous ? n_ : 0));
      if (!by_access_.emplace(key, &eviction).second)
        reject(fmt::format("storage {} is evicted twice after operator {}", key.first,
                           eviction.evict_after));
      if (k == 0) continue;
      const SwapEviction& last = plan_.evictions[k - 1];
      const auto rank = [](const SwapEviction& e) {
        return std::pair(e.evict_after, std::pair(e.storage, e.lap));
      };
      if (!(rank(last) < rank(eviction))) reject(fmt::format("eviction {} is out of order", k));
    }
  }

  // Walks one storage's life. A persistent one is walked twice: the first time only tells whether
  // its host copy is good when the step begins.
  void play_storage(SwapStorageId storage) {
    const StorageLife& life = sequence_.life(storage);
    const auto accesses = sequence_.accesses(storage);
    for (std::int64_t p = life.birth; p <= life.death; ++p) {
      whole_[slot(p)] += life.size_bytes;
      windowed_[slot(p)] += life.size_bytes;
    }
    bool is_written = false;
    for (const TimedAccess& access : accesses) is_written |= access.writes;
    bool host_is_good = !is_written;
    if (accesses.empty()) play_gap(storage, -1, kNeverNeeded, n_, host_is_good);
    const bool is_persistent = life.kind == StorageKind::kPersistent;
    for (int walk = is_persistent ? 0 : 1; walk < 2; ++walk)
      for (std::size_t k = 0; k < accesses.size(); ++k) {
        const TimedAccess& access = accesses[k];
        if (access.writes) host_is_good = false;
        std::int64_t needed_at = kNeverNeeded;
        if (k + 1 < accesses.size())
          needed_at = accesses[k + 1].position;
        else if (is_persistent)
          needed_at = accesses[0].position + n_;
        const std::int64_t end = needed_at == kNeverNeeded ? life.death + 1 : needed_at;
        if (walk == 0)
          host_is_good |= find(storage, access.position) != nullptr;
        else
          play_gap(storage, access.position, needed_at, end, host_is_good);
      }
  }

  const SwapEviction* find(SwapStorageId storage, std::int64_t position) const {
    const auto found = by_access_.find(std::pair(storage.value(), position));
    return found == by_access_.end() ? nullptr : found->second;
  }

  void play_gap(SwapStorageId storage, std::int64_t after, std::int64_t needed_at, std::int64_t end,
                bool& host_is_good) {
    const SwapEviction* eviction = find(storage, after);
    if (eviction == nullptr) return;
    ++played_;
    const std::string name =
        fmt::format("storage {} evicted after operator {}", storage.value(), eviction->evict_after);
    const StorageLife& life = sequence_.life(storage);
    if (life.mobility == Mobility::kImmovable) reject(name + " is immovable");
    const std::int64_t shift = after - eviction->evict_after;  // 0 or n
    if (eviction->evict_after >= n_) reject(name + ": counted from the wrong step");
    const bool returns = needed_at != kNeverNeeded;
    if (eviction->needed_at != (returns ? needed_at - shift : kNeverNeeded))
      reject(name + " is needed at another position");
    if (end <= after + 1) reject(name + " is needed by the very next operator");
    if (eviction->copies_out == host_is_good) reject(name + ": wrong copy out");
    if (eviction->copies_in != returns) reject(name + ": wrong copy in");
    host_is_good = true;
    if (eviction->copies_out) out_bytes_ += life.size_bytes;
    if (eviction->copies_in) in_bytes_ += life.size_bytes;
    for (std::int64_t p = after + 1; p < end; ++p) whole_[slot(p)] -= life.size_bytes;
    const std::int64_t leave = eviction->leave_before + shift;
    if (!returns && eviction->return_from != kNeverNeeded) reject(name + " returns unneeded");
    const std::int64_t back = returns ? eviction->return_from + shift : end;
    if (leave <= after || leave > back || back > end) reject(name + ": a window outside its gap");
    for (std::int64_t p = leave; p < back; ++p) windowed_[slot(p)] -= life.size_bytes;
  }

  void check_sums() {
    if (plan_.out_bytes != out_bytes_ || plan_.in_bytes != in_bytes_)
      reject(fmt::format("it claims {} + {} bytes out + in; its evictions move {} + {}",
                         plan_.out_bytes, plan_.in_bytes, out_bytes_, in_bytes_));
    if (plan_.resident_bytes != whole_) reject("its resident bytes are not those of its evictions");
    for (std::size_t op = 0; op < whole_.size(); ++op) {
      if (whole_[op] > budget_bytes_)
        reject(fmt::format("operator {} holds {} bytes, budget {}", op, whole_[op], budget_bytes_));
      if (windowed_[op] > budget_bytes_)
        reject(fmt::format("operator {} holds {} bytes within the windows, budget {}", op,
                           windowed_[op], budget_bytes_));
    }
  }

  const AccessSequence& sequence_;
  std::int64_t budget_bytes_;
  const SwapPlan& plan_;
  std::int64_t n_;
  std::map<std::pair<std::int32_t, std::int64_t>, const SwapEviction*> by_access_;
  std::size_t played_ = 0;
  std::int64_t out_bytes_ = 0;
  std::int64_t in_bytes_ = 0;
  Bytes whole_ = scratch();
  Bytes windowed_ = scratch();
};

}  // namespace

void validate_swap_plan(const AccessSequence& sequence, std::int64_t budget_bytes,
                        const SwapPlan& plan) {
  SwapPlanChecker(sequence, budget_bytes, plan).check();
}

}  // namespace plimsoll::plan
