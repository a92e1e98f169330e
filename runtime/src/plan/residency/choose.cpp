// SPDX-License-Identifier: Apache-2.0
#include "choose.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;
using graph::ValueId;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Range add and range maximum over positions.
class Curve {
 public:
  explicit Curve(const std::vector<std::int64_t>& values) {
    while (leaves_ < values.size()) leaves_ *= 2;
    max_.assign(2 * leaves_, std::numeric_limits<std::int64_t>::min() / 2);
    add_.assign(2 * leaves_, 0);
    std::copy(values.begin(), values.end(), max_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t i = leaves_; i-- > 1;) max_[i] = std::max(max_[2 * i], max_[2 * i + 1]);
  }
  void add(std::size_t begin, std::size_t end, std::int64_t value) {
    add(1, 0, leaves_, begin, end, value);
  }
  std::int64_t max(std::size_t begin, std::size_t end) const {
    return max(1, 0, leaves_, begin, end);
  }

 private:
  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end,
           std::int64_t value) {
    if (end <= low || high <= begin) return;
    if (begin <= low && high <= end) {
      max_[node] += value;
      add_[node] += value;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * node, low, middle, begin, end, value);
    add(2 * node + 1, middle, high, begin, end, value);
    max_[node] = std::max(max_[2 * node], max_[2 * node + 1]) + add_[node];
  }
  std::int64_t max(std::size_t node, std::size_t low, std::size_t high, std::size_t begin,
                   std::size_t end) const {
    if (end <= low || high <= begin) return std::numeric_limits<std::int64_t>::min() / 2;
    if (begin <= low && high <= end) return max_[node];
    const std::size_t middle = (low + high) / 2;
    return add_[node] + std::max(max(2 * node, low, middle, begin, end),
                                 max(2 * node + 1, middle, high, begin, end));
  }
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> max_, add_;
};

class Greedy {
 public:
  Greedy(const Problem& problem, const std::vector<double>& drop_ns, const ChooseOptions& options)
      : it_(problem),
        drop_ns_(drop_ns),
        options_(options),
        curve_(problem.curve_bytes),
        decisions_(problem.gaps.size(), Choice::kKeep) {}

  Decisions run() {
    std::vector<std::size_t> order(it_.gaps.size());
    std::iota(order.begin(), order.end(), 0U);
    if (options_.offload_bytes > 0) offload(order);
    if (options_.may_recompute) drop(order);
    take_back(order);
    return std::move(decisions_);
  }

 private:
  std::int64_t bytes(std::size_t g) const { return it_.bytes[it_.gaps[g].storage.index()]; }
  double per_byte(std::size_t g) const {
    return options_.may_recompute ? drop_ns_[g] / static_cast<double>(bytes(g)) : kInfinite;
  }
  double length_ns(std::size_t g) const {
    return it_.start_ns[std::size_t(it_.gaps[g].to)] - it_.start_ns[std::size_t(it_.gaps[g].from)];
  }
  bool helps(std::size_t g) const {
    return curve_.max(std::size_t(it_.gaps[g].from) + 1, std::size_t(it_.gaps[g].to)) >
           options_.target_bytes;
  }
  void apply(std::size_t g, Choice choice) {
    decisions_[g] = choice;
    curve_.add(std::size_t(it_.gaps[g].from) + 1, std::size_t(it_.gaps[g].to), -bytes(g));
  }

  void offload(std::vector<std::size_t>& order) {
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (options_.offload_order == OffloadOrder::kEarliest)
        return it_.gaps[a].from != it_.gaps[b].from ? it_.gaps[a].from < it_.gaps[b].from : a < b;
      const double left = per_byte(a);
      const double right = per_byte(b);
      if (options_.offload_order == OffloadOrder::kDearest && left != right) return left > right;
      const double longer = length_ns(a) - length_ns(b);
      return longer != 0 ? longer > 0 : a < b;
    });
    std::int64_t left = options_.offload_bytes;
    for (const std::size_t g : order) {
      const double there = it_.device->copy_ns(bytes(g), Stream::kCopyOut, Tier::kHost);
      const double back = it_.device->copy_ns(bytes(g), Stream::kCopyIn, Tier::kHost);
      if (bytes(g) > left || length_ns(g) < there + back || !helps(g)) continue;
      left -= bytes(g);
      apply(g, Choice::kOffload);
    }
  }
  void drop(std::vector<std::size_t>& order) {
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const double left = per_byte(a);
      const double right = per_byte(b);
      return left != right ? left < right : a < b;
    });
    for (const std::size_t g : order) {
      if (drop_ns_[g] == kInfinite) break;
      if (decisions_[g] == Choice::kKeep && helps(g)) apply(g, Choice::kDrop);
    }
  }
  // The dearest first.
  void take_back(std::vector<std::size_t>& order) {
    std::reverse(order.begin(), order.end());
    for (const std::size_t g : order) {
      if (decisions_[g] == Choice::kKeep) continue;
      const std::int64_t above =
          curve_.max(std::size_t(it_.gaps[g].from) + 1, std::size_t(it_.gaps[g].to)) + bytes(g);
      if (above > options_.target_bytes) continue;
      decisions_[g] = Choice::kKeep;
      curve_.add(std::size_t(it_.gaps[g].from) + 1, std::size_t(it_.gaps[g].to), bytes(g));
    }
  }

  const Problem& it_;
  const std::vector<double>& drop_ns_;
  const ChooseOptions& options_;
  Curve curve_;
  Decisions decisions_;
};

// Costs of chains through storages that are dead by the time they are needed again.
constexpr std::size_t kMaxChain = 16;

double chain_ns(const Problem& problem, StorageId target, std::int32_t needed_at) {
  double cost = 0;
  std::vector<StorageId> chain = {target};
  for (std::size_t i = 0; i < chain.size() && i < kMaxChain; ++i) {
    cost += problem.rebuild_ns[chain[i].index()];
    for (const OpId w : problem.writers[chain[i].index()])
      for (const ValueId v : problem.graph->operands(w)) {
        const StorageId q = problem.graph->storage(v);
        const bool is_dead = !problem.graph->live_at_end(q) && problem.is_pinned[q.index()] == 0 &&
                             problem.last_use(q) < needed_at;
        if (is_dead && std::find(chain.begin(), chain.end(), q) == chain.end()) chain.push_back(q);
      }
  }
  return cost;
}

}  // namespace

std::vector<double> drop_costs_ns(const Problem& problem) {
  std::vector<double> costs;
  costs.reserve(problem.gaps.size());
  for (const Gap& gap : problem.gaps)
    costs.push_back(problem.expiry[gap.storage.index()] >= gap.to
                        ? chain_ns(problem, gap.storage, gap.to)
                        : kInfinite);
  return costs;
}

Decisions choose_greedily(const Problem& problem, const std::vector<double>& drop_ns,
                          const ChooseOptions& options) {
  return Greedy(problem, drop_ns, options).run();
}

}  // namespace plimsoll::plan
