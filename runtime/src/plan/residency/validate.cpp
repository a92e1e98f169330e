// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/validate.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/interval.h"

namespace plimsoll::plan {
namespace {

using graph::Graph;
using graph::OpId;
using graph::StorageId;
using graph::ValueId;
using Clock = std::array<std::int64_t, kStreams>;  // the last step of each stream that has ended

struct Fault {
  PlanFault fault;
  std::string message;
};

// What one instance looks like while the plan is replayed.
struct Content {
  bool is_alive = false;
  bool was_alive = false;
  std::vector<ValueId> values;
  std::array<std::int64_t, kStreams> last_write = {-1, -1, -1};
  std::array<std::int64_t, kStreams> last_read = {-1, -1, -1};
};

struct HostCopy {
  std::vector<ValueId> values;
  std::int64_t written_by = -1;  // -1: from before the step
  std::int64_t last_read = -1;
  Tier tier = Tier::kHost;
};

// Bytes that an instance or a workspace used to occupy, and who used them last.
struct Ghost {
  Interval range;
  std::array<std::int64_t, kStreams> last;
};

class Replay {
 public:
  Replay(const Graph& graph, const Plan& plan, std::int64_t budget_bytes)
      : graph_(graph),
        plan_(plan),
        budget_bytes_(budget_bytes),
        recomputable_(Recomputability::make(graph)),
        contents_(plan.instances.size()),
        has_run_(graph.op_count()),
        clocks_(plan.steps.size(), Clock{-1, -1, -1}) {}

  PlanVerdict run() {
    PlanVerdict verdict;
    try {
      check_form();
      start();
      for (at_ = 0; at_ < static_cast<std::int64_t>(plan_.steps.size()); ++at_) step();
      at_ = -1;
      finish();
    } catch (const Fault& fault) {
      verdict.fault = fault.fault;
      verdict.step = at_;
      verdict.message = at_ < 0 ? fault.message : fmt::format("step {}: {}", at_, fault.message);
    }
    verdict.peak_bytes = peak_bytes_;
    verdict.live_bytes = most_live_bytes_;
    verdict.host_peak_bytes = tier_peak_[0];
    verdict.file_peak_bytes = tier_peak_[1];
    return verdict;
  }

 private:
  [[noreturn]] static void fail(PlanFault fault, std::string message) {
    // NOLINTNEXTLINE(bugprone-std-exception-baseclass): run() catches it
    throw Fault{fault, std::move(message)};
  }
  std::int64_t aligned(std::int64_t bytes) const { return align_up(bytes, plan_.alignment_bytes); }
  StorageId storage_of(InstanceId id) const { return plan_.instances[id.index()].storage; }
  std::string say(InstanceId id) const {
    return fmt::format("instance {} of storage {}", id.value(), storage_of(id).value());
  }
  Interval range_of(InstanceId id) const {
    const std::int64_t begin = plan_.instances[id.index()].address;
    return {begin, begin + aligned(graph_.size_bytes(storage_of(id)))};
  }

  void check_id(InstanceId id) const {
    if (!id.valid() || id.index() >= plan_.instances.size())
      fail(PlanFault::kForm, fmt::format("there is no instance {}", id.value()));
  }
  void check_form() {
    at_ = -1;
    if (plan_.alignment_bytes < 1 || (plan_.alignment_bytes & (plan_.alignment_bytes - 1)) != 0)
      fail(PlanFault::kForm, "the alignment is no power of two");
    for (const Instance& instance : plan_.instances) {
      if (!instance.storage.valid() || instance.storage.index() >= graph_.storage_count())
        fail(PlanFault::kForm, "an instance of a storage that does not exist");
      if (instance.address < 0 || instance.address % plan_.alignment_bytes != 0)
        fail(PlanFault::kAlignment, fmt::format("the address {} is no multiple of {}",
                                                instance.address, plan_.alignment_bytes));
    }
    for (const Step& step : plan_.steps) {
      ++at_;
      check_form(step);
    }
    at_ = -1;
  }
  void check_form(const Step& step) const {
    if (step.op.valid() != (step.kind == StepKind::kRun || step.kind == StepKind::kRecompute))
      fail(PlanFault::kForm, "an op where none belongs, or none where one does");
    if (!step.op.valid()) {
      check_id(step.instance);
    } else if (step.op.index() >= graph_.op_count() ||
               step.touched.size() != graph_.touched(step.op).size()) {
      fail(PlanFault::kForm, "an op that does not exist, or not one instance a storage");
    }
    for (std::size_t i = 0; i < step.touched.size(); ++i) {
      if (!step.touched[i].valid()) continue;
      check_id(step.touched[i]);
      if (storage_of(step.touched[i]) != graph_.touched(step.op)[i])
        fail(PlanFault::kForm, say(step.touched[i]) + " stands for another storage");
    }
    for (const std::int32_t wait : step.waits)
      if (wait < 0 || wait >= at_ || plan_.steps[std::size_t(wait)].kind == StepKind::kFree)
        fail(PlanFault::kForm, fmt::format("waits for {}, which is no earlier step", wait));
  }

  void start() {
    for (const StorageId s : plan_.starts_on_host)
      host_[s] = {first_values(s), -1, -1, Tier::kHost};
    for (const auto& [s, copy] : host_) count_tier(Tier::kHost, graph_.size_bytes(s));
    for (const InstanceId id : plan_.initial) {
      check_id(id);
      if (!graph_.live_at_start(storage_of(id)))
        fail(PlanFault::kLifetime, say(id) + " is resident before anything wrote it");
      give_birth(id);
      contents_[id.index()].values = first_values(storage_of(id));
    }
    note_peak(0);
  }
  // The values that are there before the step: those without a producer.
  std::vector<ValueId> first_values(StorageId s) const {
    std::vector<ValueId> values;
    for (const ValueId v : graph_.values(s))
      if (!graph_.producer(v).valid()) values.push_back(v);
    return values;
  }

  void step() {
    const Step& it = plan_.steps[std::size_t(at_)];
    set_clock(it);
    switch (it.kind) {
      case StepKind::kRun:
        check_order(it.op);
        run_operator(it, false);
        break;
      case StepKind::kRecompute:
        if (!recomputable_.allows(it.op))
          fail(PlanFault::kRecompute, fmt::format("op {} may not run again", it.op.value()));
        if (!has_run_[it.op.index()])
          fail(PlanFault::kRecompute, fmt::format("op {} has not run yet", it.op.value()));
        run_operator(it, true);
        break;
      case StepKind::kOffload:
        offload(it);
        break;
      case StepKind::kPrefetch:
        prefetch(it);
        break;
      case StepKind::kMove:
        move(it);
        break;
      case StepKind::kFree:
        end_life(it.instance);
        break;
    }
    note_peak(it.workspace_bytes);
  }

  void set_clock(const Step& it) {
    if (it.kind == StepKind::kFree) return;
    const auto own = static_cast<std::size_t>(it.stream());
    Clock& clock = clocks_[std::size_t(at_)];
    if (last_on_stream_[own] >= 0) clock = clocks_[std::size_t(last_on_stream_[own])];
    for (const std::int32_t wait : it.waits) {
      const Clock& other = clocks_[std::size_t(wait)];
      for (std::size_t i = 0; i < kStreams; ++i) clock[i] = std::max(clock[i], other[i]);
    }
    clock[own] = at_;
    last_on_stream_[own] = at_;
  }
  bool has_ended(const std::array<std::int64_t, kStreams>& steps) const {
    for (std::size_t i = 0; i < kStreams; ++i)
      if (steps[i] > clocks_[std::size_t(at_)][i]) return false;
    return true;
  }

  void check_order(OpId o) {
    if (has_run_[o.index()]) fail(PlanFault::kOrder, fmt::format("op {} runs twice", o.value()));
    for (const OpId before : graph_.predecessors(o))
      if (!has_run_[before.index()])
        fail(PlanFault::kOrder,
             fmt::format("op {} runs before op {}, which it needs", o.value(), before.value()));
    has_run_[o.index()] = 1;
  }

  InstanceId instance_for(const Step& it, StorageId s) const {
    const auto touched = graph_.touched(it.op);
    for (std::size_t i = 0; i < touched.size(); ++i)
      if (touched[i] == s) return it.touched[i];
    return {};
  }
  bool writes(OpId o, StorageId s) const {
    for (const ValueId v : graph_.results(o))
      if (graph_.storage(v) == s) return true;
    return false;
  }

  void run_operator(const Step& it, bool again) {
    for (const StorageId s : graph_.touched(it.op)) {
      const InstanceId id = instance_for(it, s);
      const bool lasts = graph_.live_at_start(s) && writes(it.op, s);
      if (!id.valid() && !(again && lasts))
        fail(PlanFault::kOperand, fmt::format("no instance for storage {}", s.value()));
      if (id.valid() && again && lasts)
        fail(PlanFault::kRecompute,
             fmt::format("op {} writes storage {}, which lasts, again", it.op.value(), s.value()));
    }
    for (const ValueId v : graph_.operands(it.op)) {
      const InstanceId id = instance_for(it, graph_.storage(v));
      if (!id.valid()) continue;  // state that the recomputed form leaves alone
      const Content& content = contents_[id.index()];
      if (!content.is_alive) fail(PlanFault::kOperand, say(id) + " is not there");
      if (std::find(content.values.begin(), content.values.end(), v) == content.values.end())
        fail(PlanFault::kOperand, fmt::format("{} does not hold value {}", say(id), v.value()));
    }
    if (it.taken_over.valid()) take_over(it);
    for (std::size_t i = 0; i < it.touched.size(); ++i) {
      const InstanceId id = it.touched[i];
      if (!id.valid()) continue;
      const bool is_write = writes(it.op, storage_of(id));
      if (!contents_[id.index()].is_alive && is_write && id != it.taken_over) give_birth(id);
      if (id != it.taken_over) access(id, is_write);
    }
    for (const ValueId v : graph_.results(it.op)) write(instance_for(it, graph_.storage(v)), v);
    if (it.workspace_bytes > 0) use_workspace(it);
  }

  void take_over(const Step& it) {
    check_id(it.taken_over);
    const StorageId s = storage_of(it.taken_over);
    const InstanceId heir = instance_for(
        it, graph_.storage(graph_.inplace_result(it.op).valid() ? graph_.inplace_result(it.op)
                                                                : graph_.results(it.op)[0]));
    const bool allowed =
        graph_.inplace_storage(it.op) == s && heir.valid() &&
        instance_for(it, s) == it.taken_over &&
        plan_.instances[heir.index()].address == plan_.instances[it.taken_over.index()].address &&
        !contents_[heir.index()].is_alive;
    if (!allowed)
      fail(PlanFault::kLifetime,
           fmt::format("op {} may not write over {}", it.op.value(), say(it.taken_over)));
    access(it.taken_over, true);
    end_life(it.taken_over);
  }

  void write(InstanceId id, ValueId v) {
    if (!id.valid()) return;
    std::vector<ValueId>& values = contents_[id.index()].values;
    const ValueId old = graph_.overwrites(v);
    if (old.valid()) {
      const auto found = std::find(values.begin(), values.end(), old);
      if (found == values.end())
        fail(PlanFault::kOperand,
             fmt::format("{} does not hold value {}, which is overwritten", say(id), old.value()));
      values.erase(found);
    }
    if (std::find(values.begin(), values.end(), v) == values.end()) values.push_back(v);
  }

  void access(InstanceId id, bool is_write) {
    Content& content = contents_[id.index()];
    if (!content.is_alive) fail(PlanFault::kLifetime, say(id) + " is not alive");
    if (!has_ended(content.last_write) || (is_write && !has_ended(content.last_read)))
      fail(PlanFault::kRace, say(id) + " is still in use on another stream");
    const auto own = static_cast<std::size_t>(plan_.steps[std::size_t(at_)].stream());
    (is_write ? content.last_write : content.last_read)[own] = at_;
  }

  void give_birth(InstanceId id) {
    Content& content = contents_[id.index()];
    if (content.was_alive) fail(PlanFault::kLifetime, say(id) + " is born twice");
    content.is_alive = content.was_alive = true;
    const Interval range = range_of(id);
    claim(range, id);
    if (!range.empty()) alive_.emplace(range.begin, id);
    live_bytes_ += range.length();
    peak_bytes_ = std::max(peak_bytes_, range.end);
  }
  // Nobody alive may be there, and whoever was there must have ended.
  // `id` invalid: a workspace.
  void claim(const Interval& range, InstanceId id) {
    const auto who = [&] { return id.valid() ? say(id) : std::string("the workspace"); };
    // Those alive do not overlap, so of those that begin before it only the last can reach into it.
    auto other = alive_.upper_bound(range.begin);
    if (other != alive_.begin()) --other;
    for (; other != alive_.end() && other->first < range.end; ++other)
      if (range_of(other->second).overlaps(range))
        fail(PlanFault::kOverlap, fmt::format("{} lies over {}", who(), say(other->second)));
    for (std::size_t i = 0; i < ghosts_.size();) {
      if (!ghosts_[i].range.overlaps(range)) {
        ++i;
        continue;
      }
      if (at_ >= 0 && !has_ended(ghosts_[i].last))
        fail(PlanFault::kRace, fmt::format("{} gets bytes still in use on another stream", who()));
      if (range.contains(ghosts_[i].range)) {
        ghosts_[i] = ghosts_.back();
        ghosts_.pop_back();
      } else {
        ++i;
      }
    }
  }
  void end_life(InstanceId id) {
    check_id(id);
    Content& content = contents_[id.index()];
    if (!content.is_alive) fail(PlanFault::kLifetime, say(id) + " is freed but not alive");
    content.is_alive = false;
    content.values.clear();
    std::array<std::int64_t, kStreams> last = {};
    for (std::size_t i = 0; i < kStreams; ++i)
      last[i] = std::max(content.last_write[i], content.last_read[i]);
    ghosts_.push_back({range_of(id), last});
    if (!range_of(id).empty()) alive_.erase(range_of(id).begin);
    live_bytes_ -= range_of(id).length();
  }

  void use_workspace(const Step& it) {
    const std::int64_t begin = it.workspace_address;
    if (begin < 0 || begin % plan_.alignment_bytes != 0)
      fail(PlanFault::kAlignment, fmt::format("the workspace's address is {}", begin));
    const Interval range{begin, begin + aligned(it.workspace_bytes)};
    claim(range, {});
    peak_bytes_ = std::max(peak_bytes_, range.end);
    std::array<std::int64_t, kStreams> last = {-1, -1, -1};
    last[static_cast<std::size_t>(it.stream())] = at_;
    ghosts_.push_back({range, last});
  }
  void note_peak(std::int64_t workspace_bytes) {
    most_live_bytes_ = std::max(most_live_bytes_, live_bytes_ + aligned(workspace_bytes));
  }

  void count_tier(Tier tier, std::int64_t change) {
    const auto i = static_cast<std::size_t>(tier);
    tier_bytes_[i] += change;
    tier_peak_[i] = std::max(tier_peak_[i], tier_bytes_[i]);
  }
  void offload(const Step& it) {
    access(it.instance, false);
    const StorageId s = storage_of(it.instance);
    const auto old = host_.find(s);
    if (old != host_.end()) {
      if (old->second.last_read > clocks_[std::size_t(at_)][2])
        fail(PlanFault::kRace, "overwrites a host copy that is still being fetched");
      count_tier(old->second.tier, -graph_.size_bytes(s));
    }
    count_tier(it.tier, graph_.size_bytes(s));
    host_[s] = {contents_[it.instance.index()].values, at_, -1, it.tier};
  }
  void prefetch(const Step& it) {
    const StorageId s = storage_of(it.instance);
    const auto copy = host_.find(s);
    if (copy == host_.end())
      fail(PlanFault::kHostCopy, fmt::format("storage {} is not on the host", s.value()));
    if (copy->second.tier != it.tier)
      fail(PlanFault::kHostCopy, fmt::format("storage {} lies in the other tier", s.value()));
    if (copy->second.written_by > clocks_[std::size_t(at_)][1])
      fail(PlanFault::kRace, fmt::format("storage {} is still on its way out", s.value()));
    give_birth(it.instance);
    access(it.instance, true);
    copy->second.last_read = at_;
    contents_[it.instance.index()].values = copy->second.values;
  }

  // Where both places overlap, whoever still reads the old one has to end first: it is a ghost
  // then.
  void move(const Step& it) {
    check_id(it.taken_over);
    if (storage_of(it.taken_over) != storage_of(it.instance))
      fail(PlanFault::kForm, say(it.taken_over) + " moves into another storage");
    access(it.taken_over, false);
    const std::vector<ValueId> values = contents_[it.taken_over.index()].values;
    end_life(it.taken_over);
    give_birth(it.instance);
    access(it.instance, true);
    contents_[it.instance.index()].values = values;
  }

  // The values of a storage that nothing overwrites.
  std::vector<ValueId> last_values(StorageId s) const {
    std::vector<ValueId> values;
    for (const ValueId v : graph_.values(s)) {
      const bool replaced =
          std::any_of(graph_.values(s).begin(), graph_.values(s).end(),
                      [&](ValueId other) { return graph_.overwrites(other) == v; });
      if (!replaced) values.push_back(v);
    }
    return values;
  }
  void finish() {
    for (std::size_t i = 0; i < graph_.op_count(); ++i)
      if (!has_run_[i]) fail(PlanFault::kOrder, fmt::format("op {} never runs", i));
    std::map<StorageId, InstanceId> resident;
    for (std::size_t i = 0; i < contents_.size(); ++i) {
      const InstanceId id(i);
      if (!contents_[i].is_alive) continue;
      if (!graph_.live_at_end(storage_of(id)))
        fail(PlanFault::kLifetime, say(id) + " is never freed");
      if (!resident.emplace(storage_of(id), id).second)
        fail(PlanFault::kLifetime, say(id) + " is one of two at the end");
    }
    for (std::size_t i = 0; i < graph_.storage_count(); ++i)
      if (graph_.live_at_end(StorageId(i))) check_result(StorageId(i), resident);
    if (peak_bytes_ > budget_bytes_ || plan_.arena_bytes > budget_bytes_)
      fail(PlanFault::kBudget,
           fmt::format("the arena of {} bytes is larger than the budget of {}",
                       std::max(peak_bytes_, plan_.arena_bytes), budget_bytes_));
    if (peak_bytes_ != plan_.arena_bytes || most_live_bytes_ != plan_.live_bytes)
      fail(PlanFault::kBudget,
           fmt::format("the plan says arena {} and live {}, but needs {} and {}", plan_.arena_bytes,
                       plan_.live_bytes, peak_bytes_, most_live_bytes_));
  }
  void check_result(StorageId s, const std::map<StorageId, InstanceId>& resident) const {
    const bool on_host = std::find(plan_.starts_on_host.begin(), plan_.starts_on_host.end(), s) !=
                         plan_.starts_on_host.end();
    const auto found = resident.find(s);
    std::vector<ValueId> held;
    if (on_host) {
      held = host_.at(s).values;
    } else if (found != resident.end()) {
      held = contents_[found->second.index()].values;
    } else {
      fail(PlanFault::kResult, fmt::format("storage {} is not resident at the end", s.value()));
    }
    for (const ValueId v : last_values(s))
      if (std::find(held.begin(), held.end(), v) == held.end())
        fail(PlanFault::kResult,
             fmt::format("storage {} does not end as value {}", s.value(), v.value()));
    if (on_host) return;
    for (const InstanceId first : plan_.initial)
      if (storage_of(first) == s &&
          plan_.instances[first.index()].address != plan_.instances[found->second.index()].address)
        fail(PlanFault::kResult, fmt::format("storage {} does not end where it began", s.value()));
  }

  const Graph& graph_;
  const Plan& plan_;
  std::int64_t budget_bytes_;
  Recomputability recomputable_;
  std::vector<Content> contents_;
  std::vector<std::uint8_t> has_run_;
  std::vector<Clock> clocks_;
  Clock last_on_stream_ = {-1, -1, -1};
  std::map<std::int64_t, InstanceId> alive_;  // of at least one byte, by address
  std::vector<Ghost> ghosts_;
  std::map<StorageId, HostCopy> host_;
  std::array<std::int64_t, 2> tier_bytes_ = {0, 0};
  std::array<std::int64_t, 2> tier_peak_ = {0, 0};
  std::int64_t live_bytes_ = 0;
  std::int64_t most_live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::int64_t at_ = -1;
};

}  // namespace

const char* plan_fault_name(PlanFault fault) noexcept {
  constexpr const char* kNames[] = {"none",      "form",     "order",     "operand",
                                    "recompute", "lifetime", "host_copy", "overlap",
                                    "alignment", "budget",   "race",      "result"};
  return kNames[static_cast<std::size_t>(fault)];
}

PlanVerdict validate_plan(const Graph& graph, const Plan& plan, std::int64_t budget_bytes) {
  return Replay(graph, plan, budget_bytes).run();
}

}  // namespace plimsoll::plan
