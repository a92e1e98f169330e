// SPDX-License-Identifier: Apache-2.0
#include "problem.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/plan/liveness.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;
using graph::ValueId;

namespace {

constexpr std::int32_t kNeverExpires = 1 << 30;

class ProblemMaker {
 public:
  ProblemMaker(const graph::Graph& graph, Problem& problem)
      : graph_(graph), problem_(problem), recomputable_(Recomputability::make(graph)) {}

  void run(const ProblemOptions& options) {
    add_storages(options);
    add_touches();
    add_uses();
    add_writers();
    add_expiries();
    add_gaps();
    add_curve();
    add_largest_op();
  }

 private:
  void add_storages(const ProblemOptions& options) {
    const std::size_t count = graph_.storage_count();
    problem_.is_pinned.resize(count);
    problem_.is_streamed.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const StorageId s(i);
      problem_.bytes.push_back(align_up(graph_.size_bytes(s), problem_.device->alignment_bytes));
      const std::int64_t size = graph_.size_bytes(s);
      problem_.copy_out_ns.push_back(problem_.device->copy_ns(size, Stream::kCopyOut, Tier::kHost));
      problem_.copy_in_ns.push_back(problem_.device->copy_ns(size, Stream::kCopyIn, Tier::kHost));
      const bool is_state = !graph_.values(s).empty() &&
                            graph_.kind(graph_.values(s)[0]) == graph::ValueKind::kOptimizerState;
      problem_.is_streamed[i] = options.stream_optimizer_state && is_state &&
                                graph_.live_at_start(s) && graph_.live_at_end(s);
      problem_.is_pinned[i] = graph_.live_at_start(s) && problem_.is_streamed[i] == 0;
    }
  }

  void add_touches() {
    for (std::size_t i = 0; i < graph_.op_count(); ++i) {
      for (const StorageId s : graph_.touched(OpId(i))) {
        Touch touch{s};
        for (const ValueId v : graph_.operands(OpId(i)))
          touch.reads = touch.reads || graph_.storage(v) == s;
        for (const ValueId v : graph_.results(OpId(i))) {
          if (graph_.storage(v) != s) continue;
          touch.writes = true;
          touch.reads = touch.reads || graph_.overwrites(v).valid() || graph_.unordered_writes(s);
        }
        touch.lasts = touch.writes && graph_.live_at_start(s);
        problem_.touches.items.push_back(touch);
      }
      problem_.touches.close_row();
    }
  }

  void add_uses() {
    std::vector<std::int32_t> positions;
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
      positions.clear();
      for (const OpId o : graph_.touchers(StorageId(i)))
        positions.push_back(problem_.position[o.index()]);
      std::sort(positions.begin(), positions.end());
      problem_.uses.items.insert(problem_.uses.items.end(), positions.begin(), positions.end());
      problem_.uses.close_row();
    }
  }

  void add_writers() {
    std::vector<OpId> writers;
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
      writers.clear();
      double cost = 0;
      for (const ValueId v : graph_.values(StorageId(i)))
        if (graph_.producer(v).valid()) writers.push_back(graph_.producer(v));
      std::sort(writers.begin(), writers.end(), [&](OpId a, OpId b) {
        return problem_.position[a.index()] < problem_.position[b.index()];
      });
      writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
      for (const OpId o : writers) {
        problem_.writers.items.push_back(o);
        cost += problem_.cost_ns[o.index()];
      }
      problem_.writers.close_row();
      problem_.rebuild_ns.push_back(cost);
    }
  }

  // In order of the last writer: everything a rebuild reads was finished before.
  void add_expiries() {
    std::vector<std::int32_t> overwritten_at(graph_.value_count(), kNeverExpires);
    for (std::size_t i = 0; i < graph_.value_count(); ++i) {
      const ValueId old = graph_.overwrites(ValueId(i));
      if (old.valid() && graph_.producer(ValueId(i)).valid())
        overwritten_at[old.index()] = problem_.position[graph_.producer(ValueId(i)).index()];
    }
    std::vector<std::size_t> by_last(graph_.storage_count());
    for (std::size_t i = 0; i < by_last.size(); ++i) by_last[i] = i;
    const auto last = [&](std::size_t i) {
      const auto writers = problem_.writers[i];
      return writers.empty() ? -1 : problem_.position[writers.back().index()];
    };
    std::stable_sort(by_last.begin(), by_last.end(),
                     [&](std::size_t a, std::size_t b) { return last(a) < last(b); });
    problem_.expiry.assign(graph_.storage_count(), kNeverExpires);
    for (const std::size_t i : by_last)
      problem_.expiry[i] = expiry_of(StorageId(i), overwritten_at);
  }
  std::int32_t expiry_of(StorageId s, const std::vector<std::int32_t>& overwritten_at) const {
    if (graph_.live_at_start(s)) return -1;
    std::int32_t expiry = kNeverExpires;
    for (const OpId w : problem_.writers[s.index()]) {
      if (!recomputable_.allows(w)) return -1;
      for (const ValueId v : graph_.operands(w)) {
        const StorageId q = graph_.storage(v);
        if (q == s) continue;
        // State that the op itself updates is left alone by the form that runs again.
        if (updates(w, q)) continue;
        expiry = std::min({expiry, overwritten_at[v.index()], source_expiry(q)});
      }
    }
    return expiry;
  }
  bool updates(OpId w, StorageId q) const {
    if (!graph_.live_at_start(q)) return false;
    for (const ValueId r : graph_.results(w))
      if (graph_.storage(r) == q) return true;
    return false;
  }
  // Until when a storage that a rebuild reads can be had.
  std::int32_t source_expiry(StorageId q) const {
    if (graph_.live_at_end(q)) return kNeverExpires;
    const auto last_use = static_cast<std::int32_t>(problem_.last_use(q));
    return std::max(last_use, graph_.live_at_start(q) ? -1 : problem_.expiry[q.index()]);
  }

  void add_gaps() {
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
      problem_.first_gap.push_back(static_cast<std::int32_t>(problem_.gaps.size()));
      if (problem_.is_pinned[i] || problem_.is_streamed[i] || problem_.bytes[i] == 0) continue;
      const auto uses = problem_.uses[i];
      for (std::size_t k = 0; k + 1 < uses.size(); ++k)
        if (uses[k + 1] > uses[k] + 1)
          problem_.gaps.push_back({StorageId(i), uses[k], uses[k + 1]});
    }
    problem_.first_gap.push_back(static_cast<std::int32_t>(problem_.gaps.size()));
  }

  // Streamed state counts only while an op uses it.
  void add_curve() {
    const Liveness liveness = analyze_liveness(graph_, problem_.order);
    std::vector<std::int64_t> change(problem_.order.size() + 1);
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
      const Interval& life = liveness.intervals[i];
      if (life.empty()) continue;
      if (problem_.is_pinned[i] && life.begin == 0) problem_.pinned_bytes += problem_.bytes[i];
      const Interval counted = problem_.is_streamed[i] && !problem_.uses[i].empty()
                                   ? Interval{problem_.uses[i].front(), problem_.uses[i].back() + 1}
                               : problem_.is_streamed[i] ? Interval{}
                                                         : life;
      if (counted.empty()) continue;
      change[std::size_t(counted.begin)] += problem_.bytes[i];
      change[std::size_t(counted.end)] -= problem_.bytes[i];
    }
    std::int64_t live = 0;
    for (std::size_t i = 0; i < problem_.order.size(); ++i) {
      live += change[i];
      const OpId o = problem_.order[i];
      problem_.curve_bytes.push_back(live + workspace(o));
      const auto& choices = problem_.workspace_choices[o.index()];
      const std::int64_t most = choices.empty() ? 0 : choices.back().bytes;
      problem_.stock_peak_bytes = std::max({problem_.stock_peak_bytes, problem_.curve_bytes.back(),
                                            live + align_up(most, alignment())});
      problem_.peak_bytes = std::max(problem_.peak_bytes, problem_.curve_bytes.back());
    }
  }
  std::int64_t alignment() const { return problem_.device->alignment_bytes; }
  std::int64_t workspace(OpId o) const {
    return align_up(problem_.workspace_bytes[o.index()], alignment());
  }

  // By place in the order: how the bytes that cannot leave change there.
  std::vector<std::int64_t> pinned_changes() const {
    std::vector<std::int64_t> pinned_change(problem_.order.size() + 1);
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
      if (problem_.is_pinned[i] == 0 && !graph_.live_at_end(StorageId(i))) continue;
      if (problem_.is_streamed[i] != 0) continue;
      const auto last = static_cast<std::int32_t>(problem_.last_use(StorageId(i)));
      const bool stays = graph_.live_at_end(StorageId(i));
      if (last < 0 && !stays) continue;
      // A result that is to stay cannot leave after its last use.
      const std::int32_t from = problem_.is_pinned[i] != 0 ? 0 : last;
      pinned_change[std::size_t(from)] += problem_.bytes[i];
      if (!stays) pinned_change[std::size_t(last) + 1] -= problem_.bytes[i];
    }
    return pinned_change;
  }

  void add_largest_op() {
    const std::vector<std::int64_t> pinned_change = pinned_changes();
    std::int64_t pinned = 0;
    for (std::size_t i = 0; i < problem_.order.size(); ++i) {
      pinned += pinned_change[i];
      const OpId o = problem_.order[i];
      std::int64_t bytes = pinned + workspace(o);
      for (const StorageId s : graph_.touched(o)) {
        const bool counted =
            problem_.is_streamed[s.index()] == 0 &&
            (problem_.is_pinned[s.index()] != 0 ||
             (graph_.live_at_end(s) && problem_.last_use(s) <= static_cast<std::int64_t>(i)));
        const bool vanishes = graph_.inplace_storage(o) == s &&
                              problem_.last_use(s) == static_cast<std::int64_t>(i) &&
                              !graph_.live_at_end(s);
        if (vanishes && counted) bytes -= problem_.bytes[s.index()];
        if (!counted && !vanishes) bytes += problem_.bytes[s.index()];
      }
      if (bytes <= problem_.largest_op_bytes && problem_.largest_op.valid()) continue;
      problem_.largest_op_bytes = bytes;
      problem_.largest_op = o;
    }
  }

  const graph::Graph& graph_;
  Problem& problem_;
  Recomputability recomputable_;
};

// Takes the fastest choice under the cap as the op's cost, the smallest as its need.
void add_workspaces(Problem& problem, std::int64_t cap_bytes) {
  const graph::Graph& graph = *problem.graph;
  problem.workspace_choices.resize(graph.op_count());
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const OpId o(i);
    std::vector<WorkspaceChoice>& choices = problem.workspace_choices[i];
    const auto given = graph.attribute(o, "workspace_choices");
    for (std::size_t k = 0; k + 1 < given.size(); k += 2)
      if (given[k] >= 0 && (cap_bytes < 0 || given[k] <= cap_bytes))
        choices.push_back(
            {given[k], problem.cost_ns[i] * static_cast<double>(given[k + 1]) / 1000});
    std::sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.cost_ns < b.cost_ns;
    });
    const std::int64_t least = choices.empty() ? graph.workspace_bytes(o) : choices.front().bytes;
    if (cap_bytes >= 0 && (least > cap_bytes || (!given.empty() && choices.empty())))
      throw InvalidArgument(
          fmt::format("--workspace-cap {}: op {} '{}' needs a workspace of at least {} bytes",
                      cap_bytes, i, graph.name(o),
                      least > cap_bytes ? least : *std::min_element(given.begin(), given.end())));
    problem.workspace_bytes.push_back(least);
    for (const WorkspaceChoice& choice : choices)
      problem.cost_ns[i] = std::min(problem.cost_ns[i], choice.cost_ns);
  }
}

}  // namespace

Problem make_problem(const graph::Graph& graph, const std::vector<OpId>& order,
                     const DeviceModel& device, const OpCosts& costs,
                     const ProblemOptions& options) {
  graph::check_order(graph, order);
  Problem problem;
  problem.graph = &graph;
  problem.device = &device;
  problem.order = order;
  problem.cost_ns = costs.ns;
  add_workspaces(problem, options.workspace_cap_bytes);
  problem.position.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    problem.position[order[i].index()] = static_cast<std::int32_t>(i);
    problem.start_ns.push_back(problem.total_ns);
    problem.total_ns += problem.cost_ns[order[i].index()];
  }
  problem.start_ns.push_back(problem.total_ns);
  ProblemMaker(graph, problem).run(options);
  return problem;
}

}  // namespace plimsoll::plan
