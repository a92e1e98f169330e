// SPDX-License-Identifier: Apache-2.0
#include "replay.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "plimsoll/base/bytes.h"

#include "tier_account.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;
using graph::ValueId;

namespace {

constexpr std::int32_t kNone = -1;

// Resident storages up to which every eviction looks at all of them.
constexpr std::size_t kFewResident = 256;

class Replayer {
 public:
  Replayer(const Problem& problem, const Decisions& decisions, const ReplayOptions& options)
      : it_(problem),
        graph_(*problem.graph),
        decisions_(decisions),
        options_(options),
        storages_(problem.graph->storage_count()),
        tiers_(problem),
        op_epoch_(problem.order.size()) {
    recompute_limit_ = options.recompute_limit > 0
                           ? options.recompute_limit
                           : 40 * static_cast<std::int64_t>(problem.order.size()) + 1000;
    result_.realized.assign(problem.gaps.size(), Choice::kKeep);
    steps().reserve(4 * problem.order.size());
    result_.draft.touched.reserve(8 * problem.order.size());
  }

  ReplayResult run() {
    start();
    bool ok = true;
    for (std::size_t i = 0; ok && i < it_.order.size(); ++i) {
      at_ = static_cast<std::int32_t>(i);
      ok = run_position(it_.order[i]);
    }
    result_.feasible = ok;
    if (ok) finish();
    return std::move(result_);
  }

 private:
  struct State {
    InstanceId instance;    // valid: resident
    std::int32_t next = 0;  // index into uses of the first use not yet run
    std::int32_t last_touch = -1;
    std::int32_t needs = 0;            // uses within the rebuild under way; not evicted while > 0
    std::int32_t resident_at = kNone;  // index into resident_
    std::int32_t gap = 0;              // the next of its gaps
    bool on_host = false;              // a copy of its present version
    bool is_leaving = false;           // offload issued, bytes not yet given back
    double left_ns = 0;                // when its copy will have ended
    bool is_rebuilt = false;           // being rebuilt: its writers write into it
  };

  State& state(StorageId s) { return storages_[s.index()]; }
  std::vector<DraftStep>& steps() { return result_.draft.steps; }

  void start() {
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      const StorageId s(i);
      storages_[i].gap = it_.first_gap[i];
      if (!graph_.live_at_start(s)) continue;
      if (it_.is_streamed[i]) {
        storages_[i].on_host = true;
        tiers_.start_on_host(s);
        result_.draft.starts_on_host.push_back(s);
      } else if (!it_.uses[i].empty() || graph_.live_at_end(s)) {
        result_.draft.initial.push_back(make_instance(s));
      }
    }
    note_peak(0);
    start_bytes_ = live_;
  }

  bool run_position(OpId o) { return rebuild_missing(o) && run_op(o, StepKind::kRun); }

  // --- rebuilding -------------------------------------------------------------------------------
  // Whether anything has been written into it before the present position.
  bool has_content(StorageId s) const {
    if (graph_.live_at_start(s)) return true;
    const auto writers = it_.writers[s.index()];
    return !writers.empty() && it_.position[writers.front().index()] < at_;
  }
  bool is_missing(StorageId s) { return !state(s).instance.valid() && !state(s).on_host; }

  // Runs again whatever `target` needs and is nowhere, oldest first. While it lasts, State::needs
  // counts the ops yet to run that read a storage, so that nothing they need is evicted.
  bool rebuild_missing(OpId target) {
    wanted_.clear();
    to_run_.clear();
    for (const Touch& it : it_.touches[target.index()])
      if (it.reads && has_content(it.storage) && is_missing(it.storage)) want(it.storage);
    if (wanted_.empty()) return true;
    ++epoch_;
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (!plan_rebuild(wanted_[i])) return false;
    std::sort(to_run_.begin(), to_run_.end(),
              [&](OpId a, OpId b) { return it_.position[a.index()] < it_.position[b.index()]; });
    count_readers(target, 1);
    for (const OpId o : to_run_) count_readers(o, 1);
    for (const OpId o : to_run_) {
      count_readers(o, -1);
      if (++result_.recomputed_ops > recompute_limit_) return false;
      const double rest_ns = it_.total_ns - it_.start_ns[std::size_t(at_)];
      if (compute_ns_ + rest_ns >= options_.give_up_ns) return false;
      if (!run_op(o, StepKind::kRecompute)) return false;
      for (const StorageId s : graph_.touched(o)) release(s);
    }
    count_readers(target, -1);
    return true;
  }
  void count_readers(OpId o, std::int32_t change) {
    for (const Touch& it : it_.touches[o.index()])
      if (it.reads) state(it.storage).needs += change;
  }
  void want(StorageId s) {
    if (state(s).is_rebuilt) return;
    state(s).is_rebuilt = true;
    wanted_.push_back(s);
  }
  bool plan_rebuild(StorageId s) {
    if (it_.expiry[s.index()] < at_ || !options_.may_recompute) return false;
    for (const OpId w : it_.writers[s.index()]) {
      if (it_.position[w.index()] >= at_) break;
      if (op_epoch_[w.index()] == epoch_) continue;
      op_epoch_[w.index()] = epoch_;
      to_run_.push_back(w);
      for (const Touch& it : it_.touches[w.index()]) {
        const StorageId q = it.storage;
        if (it_.is_pinned[q.index()] || q == s) continue;
        if (it.reads ? is_missing(q) : is_worth_rebuilding(w, q)) want(q);
      }
    }
    return true;
  }
  // A second result of an op that runs again anyway.
  bool is_worth_rebuilding(OpId w, StorageId q) {
    return is_missing(q) && it_.writers[q.index()].size() == 1 && it_.writers[q.index()][0] == w &&
           next_use(q) >= 0 && it_.expiry[q.index()] >= at_;
  }
  // Called for what an op of a rebuild touched: complete once its last writer so far has run.
  void release(StorageId s) {
    if (state(s).is_rebuilt && state(s).instance.valid()) {
      const auto writers = it_.writers[s.index()];
      std::size_t before = 0;
      while (before < writers.size() && it_.position[writers[before].index()] < at_) ++before;
      if (before > 0 && writers[before - 1] == last_run_) state(s).is_rebuilt = false;
    }
    settle(s);
  }

  // --- running one op ---------------------------------------------------------------------------
  bool run_op(OpId o, StepKind kind) {
    const bool again = kind == StepKind::kRecompute;
    const auto touches = it_.touches[o.index()];
    for (const Touch& it : touches) ++state(it.storage).needs;
    free_what_has_left();
    DraftStep step;
    step.kind = kind;
    step.op = o;
    step.workspace_bytes = it_.workspace_bytes[o.index()];
    step.cost_ns = it_.cost_ns[o.index()];
    for (const Touch& it : touches) {
      const State& now = state(it.storage);
      if (!it.reads || !needs_bytes(it, again) || !now.on_host) continue;
      if (!now.instance.valid() && !fetch(it.storage)) return false;
    }
    std::int64_t need = align_up(step.workspace_bytes, it_.device->alignment_bytes);
    for (const Touch& it : touches)
      if (makes_instance(it, again)) need += it_.bytes[it.storage.index()];
    const StorageId given = handed_over(o, again);
    if (given.valid()) need -= it_.bytes[given.index()];
    if (!make_room(need)) return false;
    choose_workspace(step, need);
    write_step(step, given, again);
    for (const Touch& it : touches) --state(it.storage).needs;
    finish_op(o, again, given);
    return true;
  }

  // The fastest workspace that fits in what is free anyway.
  void choose_workspace(DraftStep& step, std::int64_t need) const {
    const auto& choices = it_.workspace_choices[step.op.index()];
    if (choices.empty()) return;
    const std::int64_t alignment = it_.device->alignment_bytes;
    const std::int64_t least = align_up(step.workspace_bytes, alignment);
    double best = std::numeric_limits<double>::infinity();
    for (const WorkspaceChoice& choice : choices) {
      const bool fits =
          live_ + need - least + align_up(choice.bytes, alignment) <= options_.budget_bytes;
      if (!fits || choice.cost_ns >= best) continue;
      best = choice.cost_ns;
      step.workspace_bytes = choice.bytes;
      step.cost_ns = choice.cost_ns;
    }
  }

  // Lasting state that a recomputed op leaves alone needs no bytes.
  static bool needs_bytes(const Touch& it, bool again) { return !(again && it.lasts); }
  bool makes_instance(const Touch& it, bool again) {
    if (!it.writes || !needs_bytes(it, again)) return false;
    const State& now = state(it.storage);
    return !now.instance.valid() || (again && !now.is_rebuilt);
  }
  // The storage whose bytes the in-place result may take over here.
  StorageId handed_over(OpId o, bool again) {
    const StorageId s = graph_.inplace_storage(o);
    if (!s.valid() || !options_.free_after_use || it_.is_streamed[s.index()]) return {};
    const StorageId heir = graph_.storage(graph_.inplace_result(o));
    const bool is_last = again ? next_use(s) < 0 && !graph_.live_at_end(s)
                               : it_.last_use(s) == at_ && !graph_.live_at_end(s);
    if (!is_last || state(s).needs > 1 || !state(s).instance.valid()) return {};
    if (again && (state(s).is_rebuilt || graph_.live_at_start(s))) return {};
    for (const Touch& it : it_.touches[o.index()])
      if (it.storage == heir && makes_instance(it, again) &&
          it_.bytes[s.index()] == it_.bytes[heir.index()])
        return s;
    return {};
  }
  void write_step(DraftStep& step, StorageId given, bool again) {
    if (given.valid()) step.taken_over = state(given).instance;
    std::vector<InstanceId>& touched = result_.draft.touched;
    step.first_touched = static_cast<std::uint32_t>(touched.size());
    for (const Touch& it : it_.touches[step.op.index()]) {
      const StorageId s = it.storage;
      if (makes_instance(it, again)) {
        const bool is_wanted = !again || state(s).is_rebuilt;
        touched.push_back(is_wanted ? make_instance(s) : temporary(s));
      } else if (!needs_bytes(it, again)) {
        touched.emplace_back();
      } else {
        touched.push_back(state(s).instance);
      }
    }
    step.touched_count = static_cast<std::uint32_t>(touched.size()) - step.first_touched;
    if (given.valid()) {
      live_ -= it_.bytes[given.index()];
      forget(given);
    }
    note_peak(align_up(step.workspace_bytes, it_.device->alignment_bytes));
    compute_ns_ += step.cost_ns;
    steps().push_back(step);
    for (const InstanceId id : temporaries_) {
      emit_free(id);
      live_ -= it_.bytes[result_.draft.instances[id.index()].index()];
    }
    temporaries_.clear();
  }
  void note_peak(std::int64_t more) {
    result_.draft.peak_bytes = std::max(result_.draft.peak_bytes, live_ + more);
  }
  InstanceId temporary(StorageId s) {
    const InstanceId id(result_.draft.instances.size());
    result_.draft.instances.push_back(s);
    temporaries_.push_back(id);
    live_ += it_.bytes[s.index()];
    return id;
  }

  void finish_op(OpId o, bool again, StorageId given) {
    last_run_ = o;
    for (const Touch& touch : it_.touches[o.index()]) {
      const StorageId s = touch.storage;
      State& it = state(s);
      it.last_touch = at_;
      if (again) continue;
      if (touch.writes) it.on_host = false;
      it.is_leaving = false;
      const auto uses = it_.uses[s.index()];
      while (it.next < static_cast<std::int32_t>(uses.size()) && uses[std::size_t(it.next)] <= at_)
        ++it.next;
      if (s != given) after_use(s);
    }
  }

  // --- what becomes of a storage after a use ----------------------------------------------------
  std::int32_t next_use(StorageId s) {
    const auto uses = it_.uses[s.index()];
    State& it = state(s);
    while (it.next < static_cast<std::int32_t>(uses.size()) && uses[std::size_t(it.next)] < at_)
      ++it.next;
    if (it.next >= static_cast<std::int32_t>(uses.size())) return -1;
    return uses[std::size_t(it.next)];
  }
  void after_use(StorageId s) {
    State& it = state(s);
    if (!it.instance.valid()) return;
    const std::int32_t next = next_use_after(s);
    if (next < 0) return after_last_use(s);
    const Choice choice = choice_for(s);
    if (choice == Choice::kDrop && it_.expiry[s.index()] >= next) {
      note(s, Choice::kDrop);
      evict(s);
    }
    if (choice == Choice::kOffload) {
      note(s, Choice::kOffload);
      begin_offload(s);
    }
  }
  std::int32_t next_use_after(StorageId s) {
    const auto uses = it_.uses[s.index()];
    const std::int32_t next = state(s).next;
    return next < static_cast<std::int32_t>(uses.size()) ? uses[std::size_t(next)] : -1;
  }
  void after_last_use(StorageId s) {
    if (it_.is_streamed[s.index()]) {
      begin_offload(s);
      return;
    }
    if (graph_.live_at_end(s) || state(s).needs > 0 || !options_.free_after_use) return;
    evict(s);
  }
  Choice choice_for(StorageId s) {
    State& it = state(s);
    const std::int32_t end = it_.first_gap[s.index() + 1];
    while (it.gap < end && it_.gaps[std::size_t(it.gap)].from < at_) ++it.gap;
    if (it.gap >= end || it_.gaps[std::size_t(it.gap)].from != at_) return Choice::kKeep;
    return decisions_[std::size_t(it.gap)];
  }
  // The gap that `s` is in, as it turned out.
  void note(StorageId s, Choice choice) {
    const std::int32_t next = next_use_after(s);
    std::int32_t g = std::max(state(s).gap, it_.first_gap[s.index()]);
    while (g < it_.first_gap[s.index() + 1] && it_.gaps[std::size_t(g)].to < next) ++g;
    if (g < it_.first_gap[s.index() + 1] && it_.gaps[std::size_t(g)].to == next)
      result_.realized[std::size_t(g)] = choice;
  }
  // After an op of a rebuild: what nobody needs any more goes.
  void settle(StorageId s) {
    State& it = state(s);
    if (!it.instance.valid() || it.needs > 0 || it_.is_pinned[s.index()]) return;
    if (it.is_rebuilt) return;
    const std::int32_t next = next_use(s);
    const bool keep = next >= 0 && (options_.keep_rebuilt || next == at_ || it.on_host);
    if (!keep && !graph_.live_at_end(s)) evict(s);
  }

  void begin_offload(StorageId s) {
    State& it = state(s);
    if (it.on_host) {
      evict(s);
      return;
    }
    emit_copy(StepKind::kOffload, s);
    it.on_host = true;
    it.is_leaving = true;
    copy_out_ns_ = it.left_ns = std::max(copy_out_ns_, compute_ns_) + steps().back().cost_ns;
    leaving_.push_back(s);
  }
  bool fetch(StorageId s) {
    if (!make_room(it_.bytes[s.index()])) return false;
    make_instance(s);
    note_peak(0);
    emit_copy(StepKind::kPrefetch, s);
    return true;
  }
  void emit_copy(StepKind kind, StorageId s) {
    DraftStep step;
    step.kind = kind;
    step.instance = state(s).instance;
    step.tier = tiers_.place(s);
    step.cost_ns = it_.device->copy_ns(graph_.size_bytes(s), step.stream(), step.tier);
    steps().push_back(step);
  }
  // Bytes whose copy has ended go at once: holes close earlier and the layout is tighter.
  void free_what_has_left() {
    while (!leaving_.empty()) {
      const StorageId s = leaving_.front();
      const State& it = state(s);
      const bool waits = it.is_leaving && it.instance.valid();
      if (waits && (it.left_ns > compute_ns_ || it.needs > 0)) return;
      leaving_.pop_front();
      if (waits) evict(s);
    }
  }

  // --- room -------------------------------------------------------------------------------------
  bool make_room(std::int64_t need) {
    while (live_ + need > options_.budget_bytes) {
      if (!leaving_.empty()) {
        const StorageId s = leaving_.front();
        leaving_.pop_front();
        if (state(s).is_leaving && state(s).instance.valid() && state(s).needs == 0) evict(s);
        continue;
      }
      const StorageId victim = choose_victim();
      if (!victim.valid()) return false;
      const bool copies = state(victim).on_host || !may_drop(victim);
      note(victim, copies ? Choice::kOffload : Choice::kDrop);
      if (copies && !state(victim).on_host) {
        emit_copy(StepKind::kOffload, victim);
        state(victim).on_host = true;
      }
      evict(victim);
    }
    return true;
  }
  bool may_drop(StorageId s) {
    return options_.may_recompute && it_.expiry[s.index()] >= next_use(s);
  }
  bool may_copy(StorageId s) const {
    return options_.may_offload && it_.device->can_copy() && graph_.size_bytes(s) > 0;
  }

  bool can_leave(StorageId s) {
    const State& it = state(s);
    if (it.needs > 0 || it.is_rebuilt || it_.bytes[s.index()] == 0) return false;
    const std::int32_t next = next_use(s);
    if (next < 0 || next == at_) return false;
    return it.on_host || may_drop(s) || may_copy(s);
  }
  StorageId choose_victim() {
    if (resident_.size() > kFewResident) return choose_from_list();
    StorageId best;
    double best_score = std::numeric_limits<double>::infinity();
    for (const StorageId s : resident_) {
      if (!can_leave(s)) continue;
      const double score = victim_score(s, next_use(s), may_drop(s));
      if (score < best_score || (score == best_score && s < best)) {
        best_score = score;
        best = s;
      }
    }
    return best;
  }
  // Among many, scores change slowly: the best eighth is kept in order and used up.
  StorageId choose_from_list() {
    for (int round = 0; round < 2; ++round) {
      while (!victims_.empty()) {
        const Victim victim = victims_.back();
        victims_.pop_back();
        const bool is_same = state(victim.storage).instance == victim.instance;
        if (is_same && can_leave(victim.storage)) return victim.storage;
      }
      for (const StorageId s : resident_)
        if (can_leave(s))
          victims_.push_back({victim_score(s, next_use(s), may_drop(s)), s, state(s).instance});
      const auto worse = [](const Victim& a, const Victim& b) {
        return a.score != b.score ? a.score > b.score : b.storage < a.storage;
      };
      std::sort(victims_.begin(), victims_.end(), worse);
      victims_.erase(victims_.begin(),
                     victims_.begin() + static_cast<std::ptrdiff_t>(victims_.size() * 7 / 8));
    }
    return {};
  }
  double victim_score(StorageId s, std::int32_t next, bool drops) {
    const State& it = state(s);
    const double bytes = static_cast<double>(it_.bytes[s.index()]);
    const double idle =
        it_.start_ns[std::size_t(at_)] - it_.start_ns[std::size_t(std::max(0, it.last_touch))] + 1;
    double restore = 0;
    if (it.on_host) {
      restore = copy_in_ns(s);
    } else {
      restore = std::numeric_limits<double>::infinity();
      if (drops) restore = rebuild_cost(s);
      if (may_copy(s)) restore = std::min(restore, 2 * it_.copy_out_ns[s.index()]);
    }
    const double distance =
        options_.rule == VictimRule::kDtr
            ? idle
            : it_.start_ns[std::size_t(next)] - it_.start_ns[std::size_t(at_)] + 1;
    return restore / (bytes * distance);
  }
  double copy_in_ns(StorageId s) const { return it_.copy_in_ns[s.index()]; }
  // Its own writers and, one level down, what it takes to have what they need and is not there.
  double rebuild_cost(StorageId s) {
    double cost = it_.rebuild_ns[s.index()];
    for (const OpId w : it_.writers[s.index()])
      for (const ValueId v : graph_.operands(w)) {
        const StorageId q = graph_.storage(v);
        if (q == s || it_.is_pinned[q.index()] || state(q).instance.valid()) continue;
        cost += state(q).on_host ? copy_in_ns(q) : it_.rebuild_ns[q.index()];
      }
    return cost;
  }

  // --- instances --------------------------------------------------------------------------------
  InstanceId make_instance(StorageId s) {
    State& it = state(s);
    it.instance = InstanceId(result_.draft.instances.size());
    it.is_leaving = false;
    result_.draft.instances.push_back(s);
    live_ += it_.bytes[s.index()];
    if (!it_.is_pinned[s.index()]) {
      it.resident_at = static_cast<std::int32_t>(resident_.size());
      resident_.push_back(s);
    }
    return it.instance;
  }
  void forget(StorageId s) {
    State& it = state(s);
    it.instance = InstanceId();
    it.is_leaving = false;
    if (it.resident_at == kNone) return;
    const StorageId last = resident_.back();
    resident_[std::size_t(it.resident_at)] = last;
    state(last).resident_at = it.resident_at;
    resident_.pop_back();
    it.resident_at = kNone;
  }
  void evict(StorageId s) {
    emit_free(state(s).instance);
    live_ -= it_.bytes[s.index()];
    forget(s);
  }
  void emit_free(InstanceId id) {
    DraftStep step;
    step.kind = StepKind::kFree;
    step.instance = id;
    steps().push_back(step);
  }

  void finish() {
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      const StorageId s(i);
      if (storages_[i].instance.valid() && (!graph_.live_at_end(s) || it_.is_streamed[i])) evict(s);
    }
    PLIMSOLL_CHECK(result_.draft.peak_bytes <= std::max(options_.budget_bytes, start_bytes_),
                   "a replayed plan holds more than its budget");
    drop_useless_copies(it_, result_.draft);
    count_moves(it_, result_.draft, result_);
    if (it_.device->can_copy()) hoist_prefetches(it_, result_.draft, options_.budget_bytes);
    result_.estimated_ns = estimate_ns(it_, result_.draft, options_.budget_bytes);
  }

  struct Victim {
    double score = 0;
    StorageId storage;
    InstanceId instance;
  };

  const Problem& it_;
  const graph::Graph& graph_;
  const Decisions& decisions_;
  const ReplayOptions& options_;
  std::vector<State> storages_;
  std::vector<StorageId> resident_;  // that may be evicted at some time
  std::deque<StorageId> leaving_;    // in the order their copies were issued
  std::vector<StorageId> wanted_;
  std::vector<Victim> victims_;  // the best last
  std::vector<OpId> to_run_;
  std::vector<InstanceId> temporaries_;
  TierAccount tiers_;
  OpId last_run_;
  std::vector<std::int32_t> op_epoch_;
  std::int32_t epoch_ = 0;
  std::int32_t at_ = 0;
  std::int64_t live_ = 0;
  std::int64_t recompute_limit_ = 0;
  double compute_ns_ = 0;   // of the compute stream, stalls not counted
  double copy_out_ns_ = 0;  // when the copies issued so far will have ended
  std::int64_t start_bytes_ = 0;
  ReplayResult result_;
};

}  // namespace

void count_moves(const Problem& problem, const Draft& draft, ReplayResult& result) {
  result.recomputed_ops = result.offloaded_bytes = result.prefetched_bytes = 0;
  for (const DraftStep& step : draft.steps) {
    if (step.kind == StepKind::kRecompute) ++result.recomputed_ops;
    if (step.kind != StepKind::kOffload && step.kind != StepKind::kPrefetch) continue;
    (step.kind == StepKind::kOffload ? result.offloaded_bytes : result.prefetched_bytes) +=
        problem.graph->size_bytes(draft.instances[step.instance.index()]);
  }
}

ReplayResult replay(const Problem& problem, const Decisions& decisions,
                    const ReplayOptions& options) {
  return Replayer(problem, decisions, options).run();
}

}  // namespace plimsoll::plan
