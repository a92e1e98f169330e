// SPDX-License-Identifier: Apache-2.0
#include "choose.h"

#include <algorithm>
#include <array>
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

// By gap, whether it is that of a head: a storage that crosses from one segment into the next. Of
// each storage its widest gap counts: there it would be dropped.
class SegmentHeads {
 public:
  SegmentHeads(const Problem& problem, const std::vector<double>& drop_ns)
      : it_(problem), drop_ns_(drop_ns), crossing_(problem.order.size() + 1) {
    for (std::size_t s = 0; s < it_.bytes.size(); ++s)
      if (const auto g = widest_gap(s); g >= 0) add(StorageId(s), g);
    std::sort(lives_.begin(), lives_.end(), [](const Life& a, const Life& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.gap < b.gap;
    });
    for (std::size_t i = 1; i < crossing_.size(); ++i) crossing_[i] += crossing_[i - 1];
  }

  std::vector<std::uint8_t> run(std::int64_t segment_bytes) {
    std::vector<std::uint8_t> is_head(it_.gaps.size());
    std::size_t first = 0;  // of the segment
    std::int64_t held = 0;
    for (std::size_t i = 0; i < lives_.size(); ++i) {
      held += lives_[i].bytes;
      if (held <= segment_bytes || i == first) continue;
      const std::int32_t cut = narrowest(lives_[first].begin, lives_[i].begin);
      held = 0;
      std::size_t next = i;
      for (std::size_t k = first; k <= i; ++k) {
        if (lives_[k].begin > cut) {
          next = std::min(next, k);
          held += lives_[k].bytes;
        } else if (lives_[k].end > cut) {
          is_head[lives_[k].gap] = 1;
        }
      }
      first = next;
    }
    return is_head;
  }

 private:
  // From its first writer to the use before its widest gap.
  struct Life {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::size_t gap = 0;
    std::int64_t bytes = 0;
  };
  std::int64_t widest_gap(std::size_t s) const {
    std::int64_t best = -1;
    const auto length = [&](std::int64_t g) {
      const Gap& gap = it_.gaps[std::size_t(g)];
      return it_.start_ns[std::size_t(gap.to)] - it_.start_ns[std::size_t(gap.from)];
    };
    for (std::int64_t g = it_.first_gap[s]; g < it_.first_gap[s + 1]; ++g)
      if (drop_ns_[std::size_t(g)] != kInfinite && (best < 0 || length(g) > length(best))) best = g;
    return best;
  }
  void add(StorageId s, std::int64_t g) {
    const std::int32_t begin = it_.uses[s.index()].front();
    const std::int32_t end = it_.gaps[std::size_t(g)].from;
    lives_.push_back({begin, end, std::size_t(g), it_.bytes[s.index()]});
    crossing_[std::size_t(begin)] += it_.bytes[s.index()];
    crossing_[std::size_t(end)] -= it_.bytes[s.index()];
  }
  // After which position in the later half of [begin, end) the least crosses; the last of equals.
  std::int32_t narrowest(std::int32_t begin, std::int32_t end) const {
    std::int32_t best = end - 1;
    for (std::int32_t i = end - 1; i >= begin + (end - begin) / 2; --i)
      if (crossing_[std::size_t(i)] < crossing_[std::size_t(best)]) best = i;
    return best;
  }

  const Problem& it_;
  const std::vector<double>& drop_ns_;
  std::vector<Life> lives_;
  std::vector<std::int64_t> crossing_;  // bytes that live across the end of a position
};

std::vector<std::uint8_t> segment_heads(const Problem& problem, const std::vector<double>& drop_ns,
                                        std::int64_t segment_bytes) {
  return SegmentHeads(problem, drop_ns).run(segment_bytes);
}

// The time of one copy engine, in equal windows.
class LinkTime {
 public:
  LinkTime(double total_ns, double share, int lag)
      : window_ns_(std::max(1.0, total_ns / kLinkWindows)), lag_(lag) {
    left_ns_.fill(share * window_ns_);
  }
  // From the windows that begin with that of `at_ns` and go on in direction `step`, at most `lag`
  // beyond it.
  bool has(double at_ns, double copy_ns, int step) const {
    return end_of(at_ns, copy_ns, step) != kNoEnd;
  }
  void take(double at_ns, double copy_ns, int step) {
    const int end = end_of(at_ns, copy_ns, step);
    for (int i = window(at_ns); i != end; i += step) {
      const double taken = std::min(copy_ns, left_ns_[std::size_t(i)]);
      left_ns_[std::size_t(i)] -= taken;
      copy_ns -= taken;
    }
  }

 private:
  static constexpr int kNoEnd = -2;
  int window(double at_ns) const {
    return std::clamp(static_cast<int>(at_ns / window_ns_), 0, kLinkWindows - 1);
  }
  // One past the last window that the copy needs.
  int end_of(double at_ns, double copy_ns, int step) const {
    int end = window(at_ns);
    for (int count = 0; copy_ns > 0; end += step, ++count) {
      if (count > lag_ || end < 0 || end >= kLinkWindows) return kNoEnd;
      copy_ns -= left_ns_[std::size_t(end)];
    }
    return end;
  }
  std::array<double, kLinkWindows> left_ns_ = {};
  double window_ns_;
  int lag_;
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
    if (options_.segment_bytes > 0) is_head_ = segment_heads(it_, drop_ns_, options_.segment_bytes);
    for (const std::size_t g : order) {
      const bool drops = options_.may_recompute && !is_head(g);
      per_byte_.push_back(drops ? drop_ns_[g] / static_cast<double>(bytes(g)) : kInfinite);
    }
    if (options_.link_share > 0) offload(order);
    if (options_.may_recompute) drop(order);
    take_back(order);
    return std::move(decisions_);
  }

 private:
  std::int64_t bytes(std::size_t g) const { return it_.bytes[it_.gaps[g].storage.index()]; }
  bool is_head(std::size_t g) const { return !is_head_.empty() && is_head_[g] != 0; }
  double per_byte(std::size_t g) const { return per_byte_[g]; }
  double from_ns(std::size_t g) const { return it_.start_ns[std::size_t(it_.gaps[g].from) + 1]; }
  double to_ns(std::size_t g) const { return it_.start_ns[std::size_t(it_.gaps[g].to)]; }
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
    LinkTime out(it_.total_ns, options_.link_share, options_.link_lag);
    LinkTime in(it_.total_ns, options_.link_share, options_.link_lag);
    for (const std::size_t g : order) {
      const double there = it_.device->copy_ns(bytes(g), Stream::kCopyOut, Tier::kHost);
      const double back = it_.device->copy_ns(bytes(g), Stream::kCopyIn, Tier::kHost);
      if (length_ns(g) < there + back || !helps(g)) continue;
      if (!out.has(from_ns(g), there, 1) || !in.has(to_ns(g), back, -1)) continue;
      out.take(from_ns(g), there, 1);
      in.take(to_ns(g), back, -1);
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
      if (per_byte(g) == kInfinite) break;
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
  std::vector<std::uint8_t> is_head_;  // by gap; empty: none
  std::vector<double> per_byte_;       // cost of dropping a gap
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
