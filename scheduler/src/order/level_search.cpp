// SPDX-License-Identifier: Apache-2.0
#include "level_search.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

namespace plimsoll::order {
namespace {

struct KeyHash {
  std::size_t operator()(const StateKey& key) const { return key.first; }
};

// The states after one number of operators.
struct Layer {
  std::vector<std::uint64_t> executed, ready;  // bitsets, `words` each
  std::vector<StateKey> keys;
  std::vector<std::int64_t> level, peak;
  std::size_t size() const { return keys.size(); }
};

struct Link {
  std::int32_t parent = 0;
  std::int32_t op = 0;
};

bool test(const std::uint64_t* bits, std::int32_t i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }

class LevelSearch {
 public:
  LevelSearch(const Problem& problem, const LevelOptions& options, Stopper& stopper)
      : problem_(problem),
        options_(options),
        stopper_(stopper),
        words_((static_cast<std::size_t>(problem.op_count()) + 63) / 64) {}

  LevelResult run() {
    start();
    for (std::int32_t step = 0; step < problem_.op_count(); ++step) {
      if (!expand()) return std::move(result_);
      if (next_.size() == 0) {
        result_.outcome = LevelResult::Outcome::kNone;
        return std::move(result_);
      }
      if (options_.keep_best) keep_best();
      std::swap(now_, next_);
    }
    result_.outcome = LevelResult::Outcome::kFound;
    std::int32_t at = 0;
    for (auto links = links_.rbegin(); links != links_.rend(); ++links) {
      result_.order.push_back((*links)[at].op);
      at = (*links)[at].parent;
    }
    std::reverse(result_.order.begin(), result_.order.end());
    return std::move(result_);
  }

 private:
  void start() {
    now_.executed.assign(words_, 0);
    now_.ready.assign(words_, 0);
    for (std::int32_t o = 0; o < problem_.op_count(); ++o)
      if (problem_.before[o].empty()) now_.ready[o / 64] |= std::uint64_t{1} << (o % 64);
    now_.keys = {StateKey{}};
    now_.level = {State(problem_).level()};
    now_.peak = now_.level;
  }

  // The level while `op` runs after the set, and after it.
  std::pair<std::int64_t, std::int64_t> levels(const std::uint64_t* executed, std::int64_t level,
                                               std::int32_t op) const {
    std::int64_t run = level + problem_.extra[op], rest = level;
    for (const std::int32_t v : problem_.results[op]) {
      const auto births = problem_.births[v];
      if (births.size() > 1 && std::any_of(births.begin(), births.end(),
                                           [&](std::int32_t b) { return test(executed, b); }))
        continue;
      run += problem_.bytes[v];
      if (problem_.survives(v)) rest += problem_.bytes[v];
    }
    for (const std::int32_t v : problem_.operands[op]) {
      if (problem_.kept[v] != 0) continue;
      const auto readers = problem_.readers[v];
      const bool last = std::all_of(readers.begin(), readers.end(),
                                    [&](std::int32_t r) { return r == op || test(executed, r); });
      if (!last) continue;
      rest -= problem_.bytes[v];
      if (problem_.is_overwritten(v, op)) run -= problem_.bytes[v];
    }
    return {run, rest};
  }

  bool expand() {
    next_ = Layer();
    index_.clear();
    links_.emplace_back();
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (i % 256 == 0 && stopper_()) {
        result_.outcome = LevelResult::Outcome::kStopped;
        return false;
      }
      for (std::size_t w = 0; w < words_; ++w)
        for (std::uint64_t bits = now_.ready[i * words_ + w]; bits != 0; bits &= bits - 1)
          add(i, static_cast<std::int32_t>(w * 64) + std::countr_zero(bits));
      const auto most = static_cast<std::size_t>(options_.most_states);
      if (next_.size() > (options_.keep_best ? most * 8 : most)) {
        if (!options_.keep_best) {
          result_.outcome = LevelResult::Outcome::kFull;
          return false;
        }
        break;
      }
    }
    return true;
  }

  void add(std::size_t from, std::int32_t op) {
    const std::uint64_t* executed = &now_.executed[from * words_];
    const auto [run, rest] = levels(executed, now_.level[from], op);
    if (run > options_.budget) return;
    const std::int64_t peak = std::max(now_.peak[from], run);
    const std::uint64_t bits = mix_bits(static_cast<std::uint64_t>(op) + 1);
    const StateKey key{now_.keys[from].first ^ bits, now_.keys[from].second ^ mix_bits(bits)};
    const auto [place, is_new] = index_.emplace(key, static_cast<std::int32_t>(next_.size()));
    const Link link{static_cast<std::int32_t>(from), op};
    if (!is_new) {
      if (peak >= next_.peak[place->second]) return;
      next_.peak[place->second] = peak;
      links_.back()[place->second] = link;
      return;
    }
    ++result_.states;
    next_.keys.push_back(key);
    next_.level.push_back(rest);
    next_.peak.push_back(peak);
    links_.back().push_back(link);
    next_.executed.insert(next_.executed.end(), executed, executed + words_);
    const std::uint64_t* ready = &now_.ready[from * words_];
    next_.ready.insert(next_.ready.end(), ready, ready + words_);
    std::uint64_t* new_executed = &next_.executed[next_.executed.size() - words_];
    std::uint64_t* new_ready = &next_.ready[next_.ready.size() - words_];
    new_executed[op / 64] |= std::uint64_t{1} << (op % 64);
    new_ready[op / 64] &= ~(std::uint64_t{1} << (op % 64));
    for (const std::int32_t s : problem_.after[op]) {
      const auto before = problem_.before[s];
      if (std::all_of(before.begin(), before.end(),
                      [&](std::int32_t p) { return test(new_executed, p); }))
        new_ready[s / 64] |= std::uint64_t{1} << (s % 64);
    }
  }

  // Keeps the states with the lowest peak, then level.
  void keep_best() {
    const auto most = static_cast<std::size_t>(options_.most_states);
    if (next_.size() <= most) return;
    std::vector<std::int32_t> best(next_.size());
    std::iota(best.begin(), best.end(), 0);
    const auto better = [this](std::int32_t a, std::int32_t b) {
      if (next_.peak[a] != next_.peak[b]) return next_.peak[a] < next_.peak[b];
      return next_.level[a] != next_.level[b] ? next_.level[a] < next_.level[b] : a < b;
    };
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(most), best.end(),
                     better);
    best.resize(most);
    std::sort(best.begin(), best.end());
    Layer kept;
    std::vector<Link> links;
    for (const std::int32_t i : best) {
      const auto at = static_cast<std::ptrdiff_t>(i * words_);
      const auto width = static_cast<std::ptrdiff_t>(words_);
      kept.executed.insert(kept.executed.end(), next_.executed.begin() + at,
                           next_.executed.begin() + at + width);
      kept.ready.insert(kept.ready.end(), next_.ready.begin() + at,
                        next_.ready.begin() + at + width);
      kept.keys.push_back(next_.keys[i]);
      kept.level.push_back(next_.level[i]);
      kept.peak.push_back(next_.peak[i]);
      links.push_back(links_.back()[i]);
    }
    next_ = std::move(kept);
    links_.back() = std::move(links);
  }

  const Problem& problem_;
  const LevelOptions& options_;
  Stopper& stopper_;
  std::size_t words_;
  Layer now_, next_;
  std::unordered_map<StateKey, std::int32_t, KeyHash> index_;
  std::vector<std::vector<Link>> links_;
  LevelResult result_;
};

}  // namespace

LevelResult search_levels(const Problem& problem, const LevelOptions& options, Stopper& stopper) {
  return LevelSearch(problem, options, stopper).run();
}

}  // namespace plimsoll::order
