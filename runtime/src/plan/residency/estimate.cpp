// SPDX-License-Identifier: Apache-2.0
// What can be said of a draft's time before its addresses are known.
#include <algorithm>
#include <deque>

#include "draft.h"

namespace plimsoll::plan {

using graph::StorageId;

namespace {

// A time, and the storage whose copy ends then; invalid: no copy.
struct Ready {
  double ns = 0;
  StorageId copied;
};

// Free bytes and when they can be used again.
class BytePool {
 public:
  explicit BytePool(std::int64_t bytes) { give(bytes, {}); }
  void give(std::int64_t bytes, Ready ready) {
    if (bytes <= 0) return;
    std::deque<Part>& parts = ready.copied.valid() ? of_copies_ : of_ops_;
    if (!parts.empty() && parts.back().ready.ns >= ready.ns) {
      parts.back().bytes += bytes;
    } else {
      parts.push_back({ready, bytes});
    }
  }
  // From when `bytes` can be had: for an op, those that became ready last before `start`; for a
  // copy those that have been ready longest.
  Ready take(std::int64_t bytes, Ready start, bool is_op) {
    while (is_op && bytes > 0 && !of_ops_.empty() && of_ops_.back().ready.ns <= start.ns)
      if (take_part(bytes, of_ops_.back())) of_ops_.pop_back();
    while (bytes > 0 && (!of_ops_.empty() || !of_copies_.empty())) {
      const bool op_first =
          of_copies_.empty() ||
          (!of_ops_.empty() && of_ops_.front().ready.ns <= of_copies_.front().ready.ns);
      std::deque<Part>& parts = op_first ? of_ops_ : of_copies_;
      if (parts.front().ready.ns > start.ns) start = parts.front().ready;
      if (take_part(bytes, parts.front())) parts.pop_front();
    }
    return start;
  }

 private:
  struct Part {
    Ready ready;
    std::int64_t bytes = 0;
  };
  static bool take_part(std::int64_t& bytes, Part& part) {
    const std::int64_t taken = std::min(bytes, part.bytes);
    bytes -= taken;
    part.bytes -= taken;
    return part.bytes == 0;
  }
  std::deque<Part> of_ops_, of_copies_;  // each in order of time
};

class Clockwork {
 public:
  Clockwork(const Problem& problem, const Draft& draft, std::int64_t capacity_bytes,
            std::vector<double>* stalled_ns)
      : it_(problem),
        draft_(draft),
        stalled_ns_(stalled_ns),
        pool_(capacity_bytes - initial_bytes()),
        instances_(draft.instances.size()),
        on_host_(problem.bytes.size()) {
    for (const InstanceId id : draft.initial) instances_[id.index()].is_known = true;
  }

  double run() {
    for (const DraftStep& step : draft_.steps) {
      if (step.kind == StepKind::kFree) {
        const Times& it = instances_[step.instance.index()];
        pool_.give(bytes_of(step.instance),
                   {it.used, it.by_copy ? storage_of(step.instance) : StorageId()});
      } else if (step.op.valid()) {
        run_op(step);
      } else {
        run_copy(step);
      }
    }
    return std::max({free_at_[0], free_at_[1], free_at_[2]});
  }

 private:
  struct Times {
    double written = 0;
    double used = 0;
    bool is_known = false;
    bool by_copy = false;  // the last use was a copy
  };
  StorageId storage_of(InstanceId id) const { return draft_.instances[id.index()]; }
  std::int64_t bytes_of(InstanceId id) const {
    return it_.bytes[draft_.instances[id.index()].index()];
  }
  std::int64_t initial_bytes() const {
    std::int64_t bytes = 0;
    for (const InstanceId id : draft_.initial) bytes += bytes_of(id);
    return bytes;
  }

  void run_op(const DraftStep& step) {
    Ready start{free_at_[0], {}};
    std::int64_t room = 0;
    for (const InstanceId id : draft_.touched_of(step)) {
      if (!id.valid()) continue;
      const Times& it = instances_[id.index()];
      if (it.written > start.ns) start = {it.written, storage_of(id)};
      if (!it.is_known) room += bytes_of(id);
    }
    if (step.taken_over.valid()) room -= bytes_of(step.taken_over);
    if (room > 0) start = pool_.take(room, start, true);
    if (stalled_ns_ != nullptr && start.copied.valid())
      (*stalled_ns_)[start.copied.index()] += start.ns - free_at_[0];
    const double end = free_at_[0] = start.ns + step.cost_ns;
    const auto touched = draft_.touched_of(step);
    for (std::size_t i = 0; i < touched.size(); ++i) {
      if (!touched[i].valid()) continue;
      Times& it = instances_[touched[i].index()];
      if (it_.touches[step.op.index()][i].writes) it.written = end;
      if (end >= it.used) it.used = end, it.by_copy = false;
      it.is_known = true;
    }
  }

  void run_copy(const DraftStep& step) {
    const auto stream = static_cast<std::size_t>(step.stream());
    Times& it = instances_[step.instance.index()];
    double& host = on_host_[draft_.instances[step.instance.index()].index()];
    double start = std::max(free_at_[stream], step.kind == StepKind::kOffload ? it.written : host);
    if (step.kind == StepKind::kPrefetch)
      start = pool_.take(bytes_of(step.instance), {start, {}}, false).ns;
    const double end = free_at_[stream] = start + step.cost_ns;
    if (step.kind == StepKind::kPrefetch) {
      it = {end, end, true, true};
      return;
    }
    host = end;
    if (end > it.used) it.used = end, it.by_copy = true;
  }

  const Problem& it_;
  const Draft& draft_;
  std::vector<double>* stalled_ns_;
  BytePool pool_;
  double free_at_[kStreams] = {};
  std::vector<Times> instances_;
  std::vector<double> on_host_;
};

}  // namespace

double estimate_ns(const Problem& problem, const Draft& draft, std::int64_t capacity_bytes,
                   std::vector<double>* stalled_ns) {
  if (stalled_ns != nullptr) stalled_ns->assign(problem.bytes.size(), 0);
  const std::int64_t capacity = std::max(capacity_bytes, draft.peak_bytes);
  return Clockwork(problem, draft, capacity, stalled_ns).run();
}

double least_ns(const Problem& problem, const Draft& draft) {
  // Where there is always room, no copy waits for it.
  constexpr std::int64_t kPlenty = std::int64_t{1} << 61;
  return estimate_ns(problem, draft, kPlenty, nullptr);
}

}  // namespace plimsoll::plan
