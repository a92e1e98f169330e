// SPDX-License-Identifier: Apache-2.0
#include "level_search.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "state.h"

namespace plimsoll::order {
namespace {

constexpr std::uint64_t kAllOnes = ~std::uint64_t{0};
constexpr std::size_t kStatesPerStopCheck = 256;

// The states after one number of operators. Words before `first` are all ones in every executed
// set, words from first + width on are empty in every executed and ready set: neither is stored.
struct Layer {
  std::size_t first = 0;
  std::size_t width = 0;
  std::vector<std::uint64_t> executed, ready;  // `width` words a state
  std::vector<std::uint64_t> hash;
  std::vector<std::int64_t> level, peak;

  std::size_t size() const { return hash.size(); }
  std::size_t bytes() const { return size() * (16 * width + 24); }
  const std::uint64_t* executed_of(std::size_t i) const { return executed.data() + i * width; }
  const std::uint64_t* ready_of(std::size_t i) const { return ready.data() + i * width; }
  bool has_run(const std::uint64_t* set, std::int32_t op) const {
    const std::size_t word = static_cast<std::size_t>(op) / 64;
    if (word < first) return true;
    return word - first < width && (set[word - first] >> (op % 64) & 1) != 0;
  }
  void append(const Layer& other, std::size_t i) {
    executed.insert(executed.end(), other.executed_of(i), other.executed_of(i) + width);
    ready.insert(ready.end(), other.ready_of(i), other.ready_of(i) + width);
    hash.push_back(other.hash[i]);
    level.push_back(other.level[i]);
    peak.push_back(other.peak[i]);
  }
};

// Where a state came from.
struct Link {
  std::int32_t parent = 0;
  std::int32_t op = 0;
};

// Open addressing over the indices of one layer's states.
class Slots {
 public:
  // Forgets all and makes room for about `count`.
  void reset(std::size_t count) {
    slots_.assign(std::bit_ceil(std::max<std::size_t>(64, 2 * count)), -1);
  }
  std::size_t start(std::uint64_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t next(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  std::int32_t& at(std::size_t slot) { return slots_[slot]; }
  void grow_for(const Layer& layer) {
    if (layer.size() * 10 < slots_.size() * 6) return;
    reset(layer.size() * 2);
    for (std::size_t i = 0; i < layer.size(); ++i) {
      std::size_t slot = start(layer.hash[i]);
      while (slots_[slot] >= 0) slot = next(slot);
      slots_[slot] = static_cast<std::int32_t>(i);
    }
  }

 private:
  std::vector<std::int32_t> slots_;
};

class LevelSearch {
 public:
  LevelSearch(const Problem& problem, const LevelOptions& options, Stopper& stopper)
      : problem_(problem), options_(options), stopper_(stopper) {}

  LevelResult run() {
    using Outcome = LevelResult::Outcome;
    start();
    for (std::int32_t step = 0; step < problem_.op_count(); ++step) {
      open_next();
      if (!expand()) return std::move(result_);
      if (next_.size() == 0) {
        result_.outcome = Outcome::kNone;
        return std::move(result_);
      }
      if (options_.keep_best) keep_best();
      std::swap(now_, next_);
    }
    result_.outcome = Outcome::kFound;
    trace_back();
    return std::move(result_);
  }

 private:
  void start() {
    std::int32_t last = -1;
    for (std::int32_t o = 0; o < problem_.op_count(); ++o)
      if (problem_.before[o].empty()) last = o;
    now_.width = static_cast<std::size_t>(last + 64) / 64;
    now_.executed.assign(now_.width, 0);
    now_.ready.assign(now_.width, 0);
    for (std::int32_t o = 0; o <= last; ++o)
      if (problem_.before[o].empty()) now_.ready[o / 64] |= std::uint64_t{1} << (o % 64);
    now_.hash = {0};
    now_.level = {State(problem_).level()};
    now_.peak = now_.level;
  }

  // Prepares next_: the words in which the states that follow now_ can differ.
  void open_next() {
    std::vector<std::uint64_t> all(now_.width, kAllOnes), any(now_.width, 0);
    for (std::size_t i = 0; i < now_.size(); ++i)
      for (std::size_t w = 0; w < now_.width; ++w) {
        all[w] &= now_.executed_of(i)[w];
        any[w] |= now_.ready_of(i)[w];
      }
    std::size_t skipped = 0;
    while (skipped < now_.width && all[skipped] == kAllOnes) ++skipped;
    std::size_t end = now_.first + now_.width;
    for (std::size_t w = 0; w < now_.width; ++w)
      for (std::uint64_t bits = any[w]; bits != 0; bits &= bits - 1) {
        const auto op = static_cast<std::int32_t>((now_.first + w) * 64) + std::countr_zero(bits);
        const auto after = problem_.after[op];
        if (!after.empty()) end = std::max(end, static_cast<std::size_t>(after.back()) / 64 + 1);
      }
    next_ = Layer();
    next_.first = now_.first + skipped;
    next_.width = end - next_.first;
    layer_begins_.push_back(links_.size());
    slots_.reset(now_.size());
  }

  // The level while `op` runs after the set, and after it.
  std::pair<std::int64_t, std::int64_t> levels(const std::uint64_t* executed, std::int64_t level,
                                               std::int32_t op) const {
    std::int64_t run = level + problem_.extra[op], rest = level;
    for (const std::int32_t v : problem_.results[op]) {
      const auto births = problem_.births[v];
      if (births.size() > 1 && std::any_of(births.begin(), births.end(), [&](std::int32_t b) {
            return now_.has_run(executed, b);
          }))
        continue;
      run += problem_.bytes[v];
      if (problem_.survives(v)) rest += problem_.bytes[v];
    }
    for (const std::int32_t v : problem_.operands[op]) {
      if (problem_.kept[v] != 0) continue;
      const auto readers = problem_.readers[v];
      const bool last = std::all_of(readers.begin(), readers.end(), [&](std::int32_t r) {
        return r == op || now_.has_run(executed, r);
      });
      if (!last) continue;
      rest -= problem_.bytes[v];
      if (problem_.is_overwritten(v, op)) run -= problem_.bytes[v];
    }
    return {run, rest};
  }

  bool expand() {
    const auto most = static_cast<std::size_t>(options_.most_states);
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (i % kStatesPerStopCheck == 0 && stopper_()) {
        result_.outcome = LevelResult::Outcome::kStopped;
        return false;
      }
      for (std::size_t w = 0; w < now_.width; ++w)
        for (std::uint64_t bits = now_.ready_of(i)[w]; bits != 0; bits &= bits - 1)
          add(i, static_cast<std::int32_t>((now_.first + w) * 64) + std::countr_zero(bits));
      if (options_.keep_best && next_.size() > most * 8) break;
      if (!options_.keep_best && next_.size() > most) {
        result_.outcome = LevelResult::Outcome::kFull;
        return false;
      }
      const std::size_t link_bytes = links_.size() * sizeof(Link);
      if (now_.bytes() + next_.bytes() + link_bytes > options_.most_bytes) {
        result_.outcome = LevelResult::Outcome::kMemory;
        return false;
      }
    }
    return true;
  }

  // Whether state `i` of next_ is state `from` of now_ with `op` run.
  bool is_successor(std::size_t i, std::size_t from, std::int32_t op) const {
    const std::size_t skipped = next_.first - now_.first;
    const std::uint64_t* const set = next_.executed_of(i);
    const std::uint64_t* const old = now_.executed_of(from);
    for (std::size_t w = 0; w < next_.width; ++w) {
      std::uint64_t word = w + skipped < now_.width ? old[w + skipped] : 0;
      if (static_cast<std::size_t>(op) / 64 == next_.first + w)
        word |= std::uint64_t{1} << (op % 64);
      if (set[w] != word) return false;
    }
    return true;
  }

  void add(std::size_t from, std::int32_t op) {
    const auto [run, rest] = levels(now_.executed_of(from), now_.level[from], op);
    if (run > options_.budget) return;
    const std::int64_t peak = std::max(now_.peak[from], run);
    const std::uint64_t hash = now_.hash[from] ^ mix_bits(static_cast<std::uint64_t>(op) + 1);
    const Link link{static_cast<std::int32_t>(from), op};
    std::size_t slot = slots_.start(hash);
    for (; slots_.at(slot) >= 0; slot = slots_.next(slot)) {
      const auto known = static_cast<std::size_t>(slots_.at(slot));
      if (next_.hash[known] != hash || !is_successor(known, from, op)) continue;
      if (peak < next_.peak[known]) {
        next_.peak[known] = peak;
        links_[layer_begins_.back() + known] = link;
      }
      return;
    }
    ++result_.states;
    slots_.at(slot) = static_cast<std::int32_t>(next_.size());
    links_.push_back(link);
    next_.hash.push_back(hash);
    next_.level.push_back(rest);
    next_.peak.push_back(peak);
    add_sets(from, op);
    slots_.grow_for(next_);
  }

  void add_sets(std::size_t from, std::int32_t op) {
    const std::size_t skipped = next_.first - now_.first;
    const std::size_t shared = now_.width - skipped;
    const std::size_t at = next_.executed.size();
    next_.executed.resize(at + next_.width);
    next_.ready.resize(at + next_.width);
    std::uint64_t* const executed = next_.executed.data() + at;
    std::uint64_t* const ready = next_.ready.data() + at;
    std::copy_n(now_.executed_of(from) + skipped, shared, executed);
    std::copy_n(now_.ready_of(from) + skipped, shared, ready);
    const auto mark = [](std::int32_t o) { return std::uint64_t{1} << (o % 64); };
    const auto word = [this](std::int32_t o) {
      return static_cast<std::size_t>(o) / 64 - next_.first;
    };
    executed[word(op)] |= mark(op);
    ready[word(op)] &= ~mark(op);
    for (const std::int32_t s : problem_.after[op]) {
      const auto before = problem_.before[s];
      if (std::all_of(before.begin(), before.end(),
                      [&](std::int32_t p) { return next_.has_run(executed, p); }))
        ready[word(s)] |= mark(s);
    }
  }

  // Keeps the states with the lowest peak, then level.
  void keep_best() {
    const auto most = static_cast<std::size_t>(options_.most_states);
    if (next_.size() <= most) return;
    std::vector<std::size_t> best(next_.size());
    std::iota(best.begin(), best.end(), 0);
    const auto better = [this](std::size_t a, std::size_t b) {
      if (next_.peak[a] != next_.peak[b]) return next_.peak[a] < next_.peak[b];
      return next_.level[a] != next_.level[b] ? next_.level[a] < next_.level[b] : a < b;
    };
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(most), best.end(),
                     better);
    best.resize(most);
    std::sort(best.begin(), best.end());
    Layer kept;
    kept.first = next_.first;
    kept.width = next_.width;
    std::size_t end = layer_begins_.back();
    for (const std::size_t i : best) {
      kept.append(next_, i);
      links_[end++] = links_[layer_begins_.back() + i];
    }
    links_.resize(end);
    next_ = std::move(kept);
  }

  void trace_back() {
    std::size_t at = 0;
    for (std::size_t step = layer_begins_.size(); step-- > 0;) {
      const Link link = links_[layer_begins_[step] + at];
      result_.order.push_back(link.op);
      at = static_cast<std::size_t>(link.parent);
    }
    std::reverse(result_.order.begin(), result_.order.end());
  }

  const Problem& problem_;
  const LevelOptions& options_;
  Stopper& stopper_;
  Layer now_, next_;
  Slots slots_;
  std::vector<Link> links_;  // of all layers, one after the other
  std::vector<std::size_t> layer_begins_;
  LevelResult result_;
};

}  // namespace

LevelResult search_levels(const Problem& problem, const LevelOptions& options, Stopper& stopper) {
  return LevelSearch(problem, options, stopper).run();
}

}  // namespace plimsoll::order
