// SPDX-License-Identifier: Apache-2.0
// Which events a step has to wait for, from who used its bytes last.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/interval.h"
#include "plimsoll/plan/plan.h"

namespace plimsoll::plan {
namespace {

using StepIndex = std::int32_t;
using PerStream = std::array<StepIndex, kStreams>;
constexpr PerStream kNever = {-1, -1, -1};

std::size_t index_of(Stream stream) { return static_cast<std::size_t>(stream); }

void take_latest(PerStream& into, const PerStream& from) {
  for (std::size_t i = 0; i < kStreams; ++i) into[i] = std::max(into[i], from[i]);
}

// The last steps that wrote and read every byte, as pieces of the address space.
class LastUse {
 public:
  // Adds the steps that an access has to follow to `after`, and notes the access.
  void access(const Interval& range, bool is_write, Stream stream, StepIndex step,
              PerStream& after) {
    if (range.empty()) return;
    split(range.begin);
    split(range.end);
    auto it = pieces_.lower_bound(range.begin);
    std::int64_t at = range.begin;
    const std::size_t own = index_of(stream);
    while (at < range.end) {
      if (it == pieces_.end() || it->first > at) {  // a hole: nobody has been here
        const std::int64_t end = it == pieces_.end() ? range.end : std::min(it->first, range.end);
        it = pieces_.emplace_hint(it, at, Piece{end, kNever, kNever});
      }
      Piece& piece = it->second;
      take_latest(after, piece.writes);
      if (is_write) take_latest(after, piece.reads);
      if (!is_write) piece.reads[own] = step;
      at = piece.end;
      ++it;
    }
    if (!is_write) return;
    pieces_.erase(pieces_.lower_bound(range.begin), pieces_.lower_bound(range.end));
    Piece whole{range.end, kNever, kNever};
    whole.writes[own] = step;
    pieces_.emplace(range.begin, whole);
  }

 private:
  struct Piece {
    std::int64_t end = 0;
    PerStream writes = kNever;
    PerStream reads = kNever;
  };
  void split(std::int64_t at) {
    auto it = pieces_.lower_bound(at);
    if (it == pieces_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    const Piece right = it->second;
    it->second.end = at;
    pieces_.emplace(at, right);
  }
  std::map<std::int64_t, Piece> pieces_;
};

class WaitMaker {
 public:
  WaitMaker(const graph::Graph& graph, Plan& plan)
      : graph_(graph), plan_(plan), known_(plan.steps.size(), kNever) {}

  void run() {
    PerStream last_on_stream = kNever;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      Step& step = plan_.steps[i];
      step.waits.clear();
      if (step.kind == StepKind::kFree) continue;
      const auto index = static_cast<StepIndex>(i);
      PerStream after = kNever;
      collect(step, index, after);
      const std::size_t own = index_of(step.stream());
      if (last_on_stream[own] >= 0) known_[i] = known_[std::size_t(last_on_stream[own])];
      for (std::size_t stream = 0; stream < kStreams; ++stream) {
        if (stream == own || after[stream] <= known_[i][stream]) continue;
        step.waits.push_back(after[stream]);
      }
      drop_implied(step.waits);
      for (const StepIndex wait : step.waits) take_latest(known_[i], known_[std::size_t(wait)]);
      known_[i][own] = index;
      last_on_stream[own] = index;
    }
  }

 private:
  Interval range_of(InstanceId id) const {
    const Instance& instance = plan_.instances[id.index()];
    return {instance.address, instance.address + graph_.size_bytes(instance.storage)};
  }

  void collect(const Step& step, StepIndex index, PerStream& after) {
    const Stream stream = step.stream();
    if (step.op.valid()) {
      const auto touched = graph_.touched(step.op);
      for (std::size_t i = 0; i < touched.size(); ++i) {
        if (!step.touched[i].valid()) continue;
        bool is_write = false;
        for (const graph::ValueId v : graph_.results(step.op))
          is_write = is_write || graph_.storage(v) == touched[i];
        use_.access(range_of(step.touched[i]), is_write, stream, index, after);
      }
      use_.access({step.workspace_address, step.workspace_address + step.workspace_bytes}, true,
                  stream, index, after);
      return;
    }
    if (step.kind == StepKind::kMove) {
      use_.access(range_of(step.taken_over), false, stream, index, after);
      use_.access(range_of(step.instance), true, stream, index, after);
      return;
    }
    use_.access(range_of(step.instance), step.kind == StepKind::kPrefetch, stream, index, after);
    HostCopy& copy = host_[plan_.instances[step.instance.index()].storage.index()];
    if (step.kind == StepKind::kOffload) {
      after[index_of(Stream::kCopyIn)] = std::max(after[index_of(Stream::kCopyIn)], copy.read);
      copy.written = index;
    } else {
      after[index_of(Stream::kCopyOut)] = std::max(after[index_of(Stream::kCopyOut)], copy.written);
      copy.read = index;
    }
  }

  // Drops what another of the waits already follows.
  void drop_implied(std::vector<StepIndex>& waits) const {
    std::vector<StepIndex> kept;
    for (const StepIndex wait : waits) {
      const std::size_t stream = index_of(plan_.steps[std::size_t(wait)].stream());
      const bool implied = std::any_of(waits.begin(), waits.end(), [&](StepIndex other) {
        return other != wait && known_[std::size_t(other)][stream] >= wait;
      });
      if (!implied) kept.push_back(wait);
    }
    std::sort(kept.begin(), kept.end());
    waits = std::move(kept);
  }

  struct HostCopy {
    StepIndex written = -1;
    StepIndex read = -1;
  };
  const graph::Graph& graph_;
  Plan& plan_;
  LastUse use_;
  std::unordered_map<std::size_t, HostCopy> host_;  // by storage; never iterated
  std::vector<PerStream> known_;  // by step: the last step of each stream that has ended before it
};

}  // namespace

void add_waits(const graph::Graph& graph, Plan& plan) { WaitMaker(graph, plan).run(); }

}  // namespace plimsoll::plan
