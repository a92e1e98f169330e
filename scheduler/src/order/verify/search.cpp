// SPDX-License-Identifier: Apache-2.0
// Depth-first over sets of executed ops, within a budget of bound - 1 bytes. A state that led
// nowhere is remembered whole (no hash stands in for it). One rule prunes:
//
//   Commit. Let a chain X = x1 < x2 < ... (each depends on the one before) be runnable from a rest
//   state S within the budget, end at a level not above S's and at a level not above that of any
//   of its own prefixes. If any order completes from S within the budget, so does one that starts
//   with X: for an order P, run X first and then P without X. At each point the set run is
//   Q | X for a prefix Q of P, and f(Q | X) <= f(Q) + f(S | X) - f(S | (Q & X)) by submodularity;
//   Q & X is a prefix of X, whose level is not below that of all of X, so f(Q | X) <= f(Q).
//
// So at a state with a commit, all other ops need not be tried.
#include "order/verify/search.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

namespace plimsoll::order::detail {
namespace {

using graph::Graph;
using graph::OpId;
using graph::StorageId;

using Words = std::vector<std::uint64_t>;

struct WordsHash {
  std::size_t operator()(const Words& words) const noexcept {
    std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// Which ops have run, what is live, and what may run next.
class State {
 public:
  explicit State(const Graph& graph)
      : graph_(&graph),
        waiting_users_(graph.storage_count()),
        waiting_before_(graph.op_count()),
        has_run_(graph.op_count(), 0) {
    for (std::size_t i = 0; i < waiting_users_.size(); ++i) {
      const StorageId s(i);
      waiting_users_[i] = graph.touchers(s).size();
      if (graph.live_at_start(s) && (waiting_users_[i] > 0 || graph.live_at_end(s)))
        level_ += graph.size_bytes(s);
    }
    for (std::size_t i = 0; i < waiting_before_.size(); ++i)
      waiting_before_[i] = graph.predecessors(OpId(i)).size();
  }

  std::int64_t level() const { return level_; }
  bool has_run(OpId o) const { return has_run_[o.index()] != 0; }
  bool is_ready(OpId o) const { return !has_run(o) && waiting_before_[o.index()] == 0; }

  // (live while `o` runs, live after it)
  std::pair<std::int64_t, std::int64_t> levels_of(OpId o) const {
    std::int64_t during = level_ + graph_->workspace_bytes(o);
    std::int64_t after = level_;
    for (const StorageId s : graph_->touched(o)) {
      const std::int64_t bytes = graph_->size_bytes(s);
      const std::size_t users = waiting_users_[s.index()];
      if (!graph_->live_at_start(s) && users == graph_->touchers(s).size()) {
        during += bytes;
        after += bytes;
      }
      if (users == 1 && !graph_->live_at_end(s)) {
        after -= bytes;
        if (graph_->inplace_storage(o) == s) during -= bytes;
      }
    }
    return {during, after};
  }

  void run(OpId o) {
    level_ = levels_of(o).second;
    for (const StorageId s : graph_->touched(o)) --waiting_users_[s.index()];
    for (const OpId next : graph_->successors(o)) --waiting_before_[next.index()];
    has_run_[o.index()] = 1;
  }

  void take_back(OpId o) {
    for (const StorageId s : graph_->touched(o)) ++waiting_users_[s.index()];
    for (const OpId next : graph_->successors(o)) ++waiting_before_[next.index()];
    has_run_[o.index()] = 0;
    level_ += level_ - levels_of(o).second;
  }

 private:
  const Graph* graph_;
  std::int64_t level_ = 0;
  std::vector<std::size_t> waiting_users_, waiting_before_;
  std::vector<std::uint8_t> has_run_;
};

// The search within one piece: from what `order[0, begin)` has run to what `order[0, end)` has.
class Piece {
 public:
  Piece(const Graph& graph, State& state, std::vector<OpId> members, std::int64_t budget)
      : graph_(graph),
        state_(state),
        members_(std::move(members)),
        budget_(budget),
        is_member_(graph.op_count(), 0),
        bit_of_(graph.op_count(), 0),
        key_((members_.size() + 63) / 64, 0) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      bit_of_[members_[i].index()] = i;
      is_member_[members_[i].index()] = 1;
      if (state_.is_ready(members_[i])) ready_.push_back(members_[i]);
    }
  }

  // Says whether some order of the piece stays within the budget; leaves the state as it was.
  Rejection::Outcome search(const VerifyLimits& limits, std::int64_t& states,
                            std::chrono::steady_clock::time_point deadline);

 private:
  struct Frame {
    std::size_t trail_size = 0;  // what to return to before the next child
    std::vector<OpId> children;
    std::size_t next = 0;
  };

  void run(OpId o) {
    state_.run(o);
    trail_.push_back(o);
    flip(o);
    ready_.erase(std::find(ready_.begin(), ready_.end(), o));
    for (const OpId next : graph_.successors(o)) {
      if (is_member_[next.index()] != 0 && state_.is_ready(next)) ready_.push_back(next);
    }
  }
  void take_back_to(std::size_t size) {
    while (trail_.size() > size) {
      const OpId o = trail_.back();
      trail_.pop_back();
      // What `o` made ready is ready no more.
      std::erase_if(ready_, [this, o](OpId r) {
        const auto before = graph_.predecessors(r);
        return std::find(before.begin(), before.end(), o) != before.end();
      });
      state_.take_back(o);
      flip(o);
      ready_.push_back(o);
    }
  }
  void flip(OpId o) {
    const std::size_t bit = bit_of_[o.index()];
    key_[bit / 64] ^= std::uint64_t{1} << (bit % 64);
  }

  // Runs a committing chain from `first` if there is one; leaves the state as it was otherwise.
  bool commit_chain(OpId first) {
    constexpr std::size_t kMaxChain = 64;
    const std::size_t before = trail_.size();
    const std::int64_t level = state_.level();
    OpId o = first;
    std::int64_t lowest_prefix = level;
    while (o.valid() && trail_.size() < before + kMaxChain) {
      const auto [during, after] = state_.levels_of(o);
      if (during > budget_) break;
      run(o);
      if (after <= lowest_prefix) return true;
      o = best_follower(o);
    }
    take_back_to(before);
    return false;
  }

  // The op made ready by `o` that leaves the least; none where nothing was.
  OpId best_follower(OpId o) const {
    OpId best;
    std::int64_t least = 0;
    for (const OpId next : graph_.successors(o)) {
      if (is_member_[next.index()] == 0 || !state_.is_ready(next)) continue;
      const std::int64_t after = state_.levels_of(next).second;
      if (best.valid() && after >= least) continue;
      best = next;
      least = after;
    }
    return best;
  }

  void commit_all() {
    bool again = true;
    while (again) {
      again = false;
      const std::vector<OpId> tries = ready_;
      for (const OpId o : tries) {
        if (state_.is_ready(o) && commit_chain(o)) again = true;
      }
    }
  }

  Frame make_frame(std::size_t trail_size) const {
    Frame frame;
    frame.trail_size = trail_size;
    std::vector<std::pair<std::int64_t, OpId>> ranked;
    for (const OpId o : ready_) {
      const auto [during, after] = state_.levels_of(o);
      if (during <= budget_) ranked.emplace_back(after, o);
    }
    std::sort(ranked.begin(), ranked.end());
    for (const auto& [after, o] : ranked) frame.children.push_back(o);
    return frame;
  }

  const Graph& graph_;
  State& state_;
  std::vector<OpId> members_;
  std::int64_t budget_;
  std::vector<std::uint8_t> is_member_;
  std::vector<std::size_t> bit_of_;
  Words key_;
  std::vector<OpId> ready_;
  std::vector<OpId> trail_;
};

Rejection::Outcome Piece::search(const VerifyLimits& limits, std::int64_t& states,
                                 std::chrono::steady_clock::time_point deadline) {
  using Outcome = Rejection::Outcome;
  std::unordered_set<Words, WordsHash> seen;
  const auto state_bytes = static_cast<std::int64_t>(key_.size() * 8 + 64);
  Outcome outcome = Outcome::kRejected;
  commit_all();
  std::vector<Frame> stack;
  stack.push_back(make_frame(trail_.size()));
  if (trail_.size() == members_.size()) outcome = Outcome::kRefuted;
  while (!stack.empty() && outcome == Outcome::kRejected) {
    Frame& top = stack.back();
    take_back_to(top.trail_size);
    if (top.next == top.children.size()) {
      stack.pop_back();
      continue;
    }
    run(top.children[top.next++]);
    commit_all();
    if (trail_.size() == members_.size()) {
      outcome = Outcome::kRefuted;
    } else if (seen.insert(key_).second) {
      ++states;
      const bool too_long =
          limits.seconds >= 0 && (states & 255) == 0 && std::chrono::steady_clock::now() > deadline;
      if (states >= limits.max_states || too_long ||
          static_cast<std::int64_t>(seen.size()) * state_bytes > limits.max_memory_bytes)
        outcome = Outcome::kLimit;
      stack.push_back(make_frame(trail_.size()));
    }
  }
  take_back_to(0);
  return outcome;
}

}  // namespace

std::vector<std::uint8_t> find_separators(const Graph& graph,
                                          const std::vector<std::int32_t>& order) {
  const std::size_t count = order.size();
  std::vector<std::size_t> step_of(count);
  for (std::size_t step = 0; step < count; ++step)
    step_of[static_cast<std::size_t>(order[step])] = step;
  // An edge passes over every step strictly between its ends; an op without predecessor hangs on
  // what was before the first step, one without successor on what comes after the last.
  std::vector<std::int64_t> change(count + 2, 0);
  const auto pass_over = [&change](std::size_t first, std::size_t last) {
    if (first >= last) return;
    ++change[first];
    --change[last];
  };
  for (std::size_t op = 0; op < count; ++op) {
    const auto before = graph.predecessors(OpId(op));
    for (const OpId p : before) pass_over(step_of[p.index()] + 1, step_of[op]);
    if (before.empty()) pass_over(0, step_of[op]);
    if (graph.successors(OpId(op)).empty()) pass_over(step_of[op] + 1, count);
  }
  // A step that nothing passes over runs an op that every other op comes before or after.
  std::vector<std::uint8_t> separates(count + 1, 0);
  separates[0] = 1;
  separates[count] = 1;
  std::int64_t passing = 0;
  for (std::size_t step = 0; step < count; ++step) {
    passing += change[step];
    if (passing != 0) continue;
    separates[step] = 1;
    separates[step + 1] = 1;
  }
  return separates;
}

Rejection reject_below(const Graph& graph, const Certificate& certificate,
                       const VerifyLimits& limits) {
  using Outcome = Rejection::Outcome;
  Rejection rejection;
  const std::int64_t budget = certificate.lower_bound_bytes - 1;
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(std::max(0.0, limits.seconds)));
  const std::vector<std::uint8_t> separates = find_separators(graph, certificate.order);
  std::vector<std::int64_t> cuts = {0};
  for (const std::int64_t step : certificate.separators) {
    const auto last = static_cast<std::int64_t>(certificate.order.size());
    if (step < cuts.back() || step > last || separates[static_cast<std::size_t>(step)] == 0) {
      rejection.outcome = Outcome::kRefuted;
      rejection.reason = fmt::format("step {} is no separator", step);
      return rejection;
    }
    cuts.push_back(step);
  }
  cuts.push_back(static_cast<std::int64_t>(certificate.order.size()));
  State state(graph);
  if (state.level() > budget) {
    rejection.outcome = Outcome::kRejected;
    return rejection;
  }
  bool limit = false;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::vector<OpId> members;
    for (std::int64_t step = cuts[i]; step < cuts[i + 1]; ++step)
      members.emplace_back(certificate.order[static_cast<std::size_t>(step)]);
    if (members.empty()) continue;
    const Outcome outcome =
        Piece(graph, state, members, budget).search(limits, rejection.states, deadline);
    // One piece that cannot stay below the bound is enough.
    if (outcome == Outcome::kRejected) {
      rejection.outcome = Outcome::kRejected;
      return rejection;
    }
    limit = limit || outcome == Outcome::kLimit;
    for (const OpId o : members) state.run(o);
  }
  rejection.outcome = limit ? Outcome::kLimit : Outcome::kRefuted;
  rejection.reason = limit ? fmt::format(
                                 "the checker's own search stopped at its limit after {} "
                                 "states; the bound is not checked",
                                 rejection.states)
                           : fmt::format("the checker found an order below the bound of {} bytes",
                                         certificate.lower_bound_bytes);
  return rejection;
}

}  // namespace plimsoll::order::detail
