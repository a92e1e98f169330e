// SPDX-License-Identifier: Apache-2.0
#include "choose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "curve.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;
using graph::ValueId;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

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
      if (left_ns_[std::size_t(i)] <= 0) has_left_ &= ~(std::uint64_t{1} << i);
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
    const int begin = window(at_ns);
    int end = begin;
    for (; copy_ns > 0; end += step) {
      end = with_time_left(end, step);
      if (end == kNoEnd || std::abs(end - begin) > lag_) return kNoEnd;
      copy_ns -= left_ns_[std::size_t(end)];
    }
    return end;
  }
  // The first window from `i` on.
  int with_time_left(int i, int step) const {
    if (i < 0 || i >= kLinkWindows) return kNoEnd;
    const std::uint64_t rest = step > 0 ? has_left_ >> i : has_left_ << (kLinkWindows - 1 - i);
    if (rest == 0) return kNoEnd;
    return step > 0 ? i + std::countr_zero(rest) : i - std::countl_zero(rest);
  }
  static_assert(kLinkWindows == 64, "one bit a window");
  std::array<double, kLinkWindows> left_ns_ = {};
  std::uint64_t has_left_ = ~std::uint64_t{0};  // by window
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

  // By the pair that `key` gives for a gap, ties by gap; the keys stand side by side while it
  // sorts.
  template <typename Key>
  static void sort_by(std::vector<std::size_t>& order, const Key& key) {
    std::vector<std::tuple<double, double, std::size_t>> keyed;
    keyed.reserve(order.size());
    for (const std::size_t g : order) {
      const auto [first, second] = key(g);
      keyed.emplace_back(first, second, g);
    }
    std::sort(keyed.begin(), keyed.end());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = std::get<2>(keyed[i]);
  }

  void offload(std::vector<std::size_t>& order) {
    sort_by(order, [&](std::size_t g) -> std::pair<double, double> {
      if (options_.offload_order == OffloadOrder::kEarliest) return {it_.gaps[g].from, 0};
      const bool is_dearest = options_.offload_order == OffloadOrder::kDearest;
      return {is_dearest ? -per_byte(g) : 0, -length_ns(g)};
    });
    LinkTime out(it_.total_ns, options_.link_share, options_.link_lag);
    LinkTime in(it_.total_ns, options_.link_share, options_.link_lag);
    for (const std::size_t g : order) {
      const double there = it_.copy_out_ns[it_.gaps[g].storage.index()];
      const double back = it_.copy_in_ns[it_.gaps[g].storage.index()];
      if (length_ns(g) < there + back || !helps(g)) continue;
      if (!out.has(from_ns(g), there, 1) || !in.has(to_ns(g), back, -1)) continue;
      out.take(from_ns(g), there, 1);
      in.take(to_ns(g), back, -1);
      apply(g, Choice::kOffload);
    }
  }
  void drop(std::vector<std::size_t>& order) {
    sort_by(order, [&](std::size_t g) { return std::pair(per_byte(g), 0.0); });
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
