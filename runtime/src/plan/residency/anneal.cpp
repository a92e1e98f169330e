// SPDX-License-Identifier: Apache-2.0
#include "anneal.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string_view>
#include <tuple>
#include <utility>

#include "arrange.h"

namespace plimsoll::plan {
namespace {

// What a worse plan may cost at first, in parts of the step; less where there are fewer tries, so
// that they end as cold.
constexpr double kWarmth = 0.01;
constexpr double kTriesOfWarmth = 4000;
constexpr std::size_t kStarts = 2;
constexpr std::size_t kSearches = 2;
constexpr int kTriesOfSearch = 800;  // with fewer, one search
constexpr std::size_t kMostFlips = 3;
// Every so many tries, what was rebuilt stays where it went before, or the other way round.
constexpr std::size_t kKeepEvery = 50;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Gaps alike: the same kind of op wrote as many bytes, and as many ops lie between. Each class in
// the order in which its storages are made.
struct Alike {
  std::vector<std::size_t> class_of;  // by gap
  std::vector<std::vector<std::size_t>> gaps;
};

Alike find_alike(const Problem& problem) {
  // Long gaps, whose length differs with the place in the step, count as equally long.
  constexpr std::int32_t kLong = 40;
  Alike alike;
  std::map<std::tuple<std::string_view, std::int64_t, std::int32_t>, std::size_t> classes;
  for (std::size_t g = 0; g < problem.gaps.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    const auto writers = problem.writers[gap.storage.index()];
    const std::string_view kind = writers.empty() ? "" : problem.graph->kind(writers[0]);
    const auto key =
        std::tuple(kind, problem.bytes[gap.storage.index()], std::min(gap.to - gap.from, kLong));
    const auto [found, is_new] = classes.emplace(key, alike.gaps.size());
    if (is_new) alike.gaps.emplace_back();
    alike.class_of.push_back(found->second);
    alike.gaps[found->second].push_back(g);
  }
  return alike;
}

class Annealer {
 public:
  Annealer(const Problem& problem, const std::vector<double>& drop_ns, const Alike& alike,
           RungResult start, double least_ns)
      : it_(problem),
        drop_ns_(drop_ns),
        alike_(alike),
        least_ns_(least_ns),
        now_(std::move(start)) {
    now_ns_ = time_of(now_, kInfinite);
    if (now_ns_ < kInfinite && now_ns_ >= least_ns_) best_ = now_, best_ns_ = now_ns_;
  }

  double best_ns() const { return best_ns_; }
  double now_ns() const { return now_ns_; }
  std::optional<RungResult> take_best() { return std::move(best_); }

  // Cools from `warmth` to nothing.
  void run(int tries, double warmth, std::size_t seed) {
    random_.seed(seed);
    for (int i = 0; i < tries && !it_.gaps.empty(); ++i) {
      const double left = 1 - static_cast<double>(i) / tries;
      const double most_ns = now_ns_ - warmth * left * it_.total_ns * std::log(part());
      RungResult next = changed();
      const double next_ns = time_of(next, most_ns);
      if (next_ns > most_ns || next_ns < least_ns_) continue;
      now_ns_ = next_ns;
      now_.given = next.given;
      now_.options = next.options;
      if (now_ns_ >= best_ns_) continue;
      best_ns_ = now_ns_;
      best_ = std::move(next);
    }
  }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  double part() { return (static_cast<double>(below(1'000'000)) + 1) / 1e6; }

  // With addresses; infinite where it is above `most_ns`.
  double time_of(RungResult& it, double most_ns) const {
    it.options.give_up_ns = most_ns;
    it.replay = replay(it_, it.given, it.options);
    it.options.give_up_ns = kInfinite;
    if (!it.replay.feasible || it.replay.estimated_ns > most_ns) return kInfinite;
    const Arrangement made = arrange(it_, it.replay.draft, it.options.budget_bytes, most_ns);
    return made.fits ? made.total_ns : kInfinite;
  }

  RungResult changed() {
    RungResult next;
    next.given = now_.given;
    next.options = now_.options;
    if (below(2) == 0) {
      change_alike(next.given);
    } else {
      for (std::size_t left = 1 + below(kMostFlips); left > 0; --left)
        set(next.given, below(it_.gaps.size()), static_cast<Choice>(below(3)));
    }
    if (next.options.may_recompute && below(kKeepEvery) == 0)
      next.options.keep_rebuilt = !next.options.keep_rebuilt;
    return next;
  }
  // A stretch of one class.
  void change_alike(Decisions& decisions) {
    const std::vector<std::size_t>& gaps = alike_.gaps[alike_.class_of[below(it_.gaps.size())]];
    const auto choice = static_cast<Choice>(below(3));
    std::size_t first = below(gaps.size());
    std::size_t last = below(gaps.size());
    if (below(2) == 0) first = 0, last = gaps.size() - 1;
    if (first > last) std::swap(first, last);
    for (std::size_t i = first; i <= last; ++i) set(decisions, gaps[i], choice);
  }
  void set(Decisions& decisions, std::size_t g, Choice choice) const {
    const bool is_allowed =
        choice == Choice::kKeep ||
        (choice == Choice::kDrop && now_.options.may_recompute && std::isfinite(drop_ns_[g])) ||
        (choice == Choice::kOffload && now_.options.may_offload && it_.device->can_copy());
    if (is_allowed) decisions[g] = choice;
  }

  const Problem& it_;
  const std::vector<double>& drop_ns_;
  const Alike& alike_;
  double least_ns_;
  RungResult now_;
  double now_ns_ = kInfinite;
  std::optional<RungResult> best_;
  double best_ns_ = kInfinite;
  std::mt19937_64 random_;
};

}  // namespace

// Single searches end far apart, so the tries are spent on several: from the two starts that are
// fastest as they are, each more than once.
std::optional<RungResult> anneal(const Problem& problem, const std::vector<double>& drop_ns,
                                 const std::vector<RungResult>& starts,
                                 const AnnealOptions& options) {
  const Alike alike = find_alike(problem);
  std::vector<Annealer> first;
  first.reserve(starts.size());
  for (const RungResult& start : starts)
    first.emplace_back(problem, drop_ns, alike, start, options.least_ns);
  std::vector<std::size_t> by_time(first.size());
  for (std::size_t i = 0; i < by_time.size(); ++i) by_time[i] = i;
  std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
    return first[a].now_ns() < first[b].now_ns();
  });
  const std::size_t searches = options.tries < kTriesOfSearch ? 1 : kSearches;
  const int tries = options.tries / static_cast<int>(searches);
  std::optional<RungResult> best;
  double best_ns = kInfinite;
  for (std::size_t i = 0; i < searches && !first.empty(); ++i) {
    Annealer search = first[by_time[i % std::min(kStarts, first.size())]];
    search.run(tries, kWarmth * std::min(1.0, tries / kTriesOfWarmth), i);
    if (search.best_ns() >= best_ns) continue;
    best_ns = search.best_ns();
    best = search.take_best();
  }
  return best;
}

}  // namespace plimsoll::plan
