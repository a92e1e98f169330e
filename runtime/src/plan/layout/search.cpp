// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <utility>

namespace plimsoll::plan::layout_detail {
namespace {

constexpr std::size_t kFewestSeen = std::size_t{1} << 10;
constexpr std::size_t kMostSeen = std::size_t{1} << 20;
constexpr std::int64_t kNodesBetweenStopChecks = 256;  // a power of two

}  // namespace

std::int64_t SectionSearch::count_pairs(const Instance& instance) {
  // Pairs of pieces, from how many are open when each one begins; a bound from above with gaps.
  std::vector<std::int64_t> begins(static_cast<std::size_t>(instance.sections) + 1, 0);
  std::vector<std::int64_t> ends(static_cast<std::size_t>(instance.sections) + 1, 0);
  for (const Piece& p : instance.pieces) {
    ++begins[static_cast<std::size_t>(p.first)];
    ++ends[static_cast<std::size_t>(p.last)];
  }
  std::int64_t open = 0;
  std::int64_t pairs = 0;
  for (std::size_t s = 0; s < begins.size(); ++s) {
    open -= ends[s];
    pairs += begins[s] * open + begins[s] * (begins[s] - 1) / 2;
    open += begins[s];
  }
  return pairs;
}

SectionSearch::SectionSearch(const Instance& instance, const LayoutSearchRules& rules)
    : instance_(instance), rules_(rules) {
  const std::size_t n = instance.items.size();
  const auto sections = static_cast<std::size_t>(instance.sections);
  // A window lets one item stand under another's overhang, which no order of stacking reaches.
  complete_ = !instance.has_windows;
  section_begin_.assign(sections + 1, 0);
  for (const Piece& p : instance.pieces) {
    for (std::int32_t s = p.first; s < p.last; ++s)
      ++section_begin_[static_cast<std::size_t>(s) + 1];
  }
  for (std::size_t s = 0; s < sections; ++s) section_begin_[s + 1] += section_begin_[s];
  section_items_.resize(static_cast<std::size_t>(section_begin_[sections]));
  std::vector<std::int32_t> fill(section_begin_.begin(), section_begin_.end() - 1);
  for (std::size_t i = 0; i < n; ++i) {
    for (const Piece& p : instance.pieces_of(i)) {
      for (std::int32_t s = p.first; s < p.last; ++s)
        section_items_[static_cast<std::size_t>(fill[static_cast<std::size_t>(s)]++)] =
            static_cast<std::int32_t>(i);
    }
  }
  build_edges();
  item_key_.resize(n);
  first_section_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    item_key_[i] = mix_key(KeyKind::kItem, i);
    first_section_[i] = instance.first_section(i);
  }
  // Twins: equal in everything a layout can see.
  using Shape = std::vector<std::int64_t>;
  std::map<Shape, std::int32_t> last;
  twin_.assign(n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    const Item& it = instance.items[i];
    Shape shape{it.size, it.alignment, it.fixed};
    for (const Piece& p : instance.pieces_of(i)) {
      shape.push_back(p.first);
      shape.push_back(p.last);
      shape.push_back(p.low);
      shape.push_back(p.high);
    }
    const auto [at, fresh] = last.try_emplace(std::move(shape), static_cast<std::int32_t>(i));
    if (!fresh) twin_[i] = std::exchange(at->second, static_cast<std::int32_t>(i));
  }
  level_.resize(sections);
  standing_.resize(sections);
  level_key_.resize(sections);
  item_hash_.resize(sections);
  is_dirty_.resize(sections);
  dirty_.reserve(sections);
  lone_.reserve(sections);
  left_.resize(sections);
  count_.resize(sections);
  crossing_.resize(sections);
  lowest_.resize(n);
  placed_.resize(n);
  offset_.resize(n);
  trail_.reserve(16 * (n + sections));
  candidates_.reserve(n * 4);
  if (rules.memory) seen_.assign(std::clamp(std::bit_ceil(n * n * 64), kFewestSeen, kMostSeen), 0);
}

std::int64_t SectionSearch::low_in(std::size_t item, std::int32_t section) const {
  std::int64_t low = 0;
  for (const Piece& p : instance_.pieces_of(item)) {
    if (p.first <= section && section < p.last) low = p.low;
  }
  return low;
}

void SectionSearch::build_edges() {
  const std::size_t n = instance_.items.size();
  std::vector<std::int32_t> mark(n, -1);
  std::vector<std::size_t> slot(n, 0);
  edge_begin_.assign(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    edge_begin_[i] = static_cast<std::int32_t>(edges_.size());
    mark[i] = static_cast<std::int32_t>(i);
    for (const Piece& p : instance_.pieces_of(i)) {
      for (std::int32_t s = p.first; s < p.last; ++s) {
        for (std::int32_t k = section_begin_[static_cast<std::size_t>(s)];
             k < section_begin_[static_cast<std::size_t>(s) + 1]; ++k) {
          const std::int32_t other = section_items_[static_cast<std::size_t>(k)];
          const auto o = static_cast<std::size_t>(other);
          if (o == i) continue;
          const std::int64_t lift = p.high - low_in(o, s);
          if (mark[o] != static_cast<std::int32_t>(i)) {
            mark[o] = static_cast<std::int32_t>(i);
            slot[o] = edges_.size();
            edges_.push_back({other, lift});
          } else {
            edges_[slot[o]].lift = std::max(edges_[slot[o]].lift, lift);
          }
        }
      }
    }
  }
  edge_begin_[n] = static_cast<std::int32_t>(edges_.size());
}

SearchOutcome SectionSearch::run(std::int64_t target, const SearchVariant& variant,
                                 std::int64_t limit, const StopCheck& stop) {
  variant_ = &variant;
  stop_ = &stop;
  nodes_ = 0;
  limit_ = limit;
  was_stopped_ = false;
  // What failed in an earlier run for this target is remembered, and so must be what it refused.
  next_target_ = refused_.try_emplace(target, kInfinity).first->second;
  const SearchOutcome outcome = run_from_empty(target);
  refused_[target] = next_target_;
  if (outcome == SearchOutcome::kExhausted && !complete_) return SearchOutcome::kLimit;
  return outcome;
}

SearchOutcome SectionSearch::run_from_empty(std::int64_t target) {
  reset(target);
  for (std::size_t s = 0; s < left_.size(); ++s) {
    if (left_[s] > target && !refuse(left_[s])) return SearchOutcome::kExhausted;
  }
  for (std::size_t i = 0; i < lowest_.size(); ++i) {
    if (lowest_[i] + instance_.items[i].size > target &&
        !refuse(lowest_[i] + instance_.items[i].size))
      return SearchOutcome::kExhausted;
  }
  return solve(0, instance_.sections);
}

// Two states share a key with a chance of 2^-64 a pair; that is the only way to a wrong proof.
bool SectionSearch::remembers(std::uint64_t key) const {
  return rules_.memory && key != 0 && seen_[key & (seen_.size() - 1)] == key;
}

void SectionSearch::remember(std::uint64_t key) {
  if (rules_.memory) seen_[key & (seen_.size() - 1)] = key;
}

SearchOutcome SectionSearch::solve(std::int32_t first, std::int32_t last) {
  while (first < last && count_[static_cast<std::size_t>(first)] == 0) ++first;
  while (first < last && count_[static_cast<std::size_t>(last) - 1] == 0) --last;
  if (first == last) return SearchOutcome::kFound;
  if (++nodes_ > limit_) return SearchOutcome::kLimit;
  if ((nodes_ & (kNodesBetweenStopChecks - 1)) == 0 && *stop_ && (*stop_)()) {
    was_stopped_ = true;
    return SearchOutcome::kLimit;
  }
  const std::size_t mark = trail_.size();
  std::uint64_t key = 0;
  if (!infer(first, last, key) || remembers(key)) {
    undo(mark);
    return SearchOutcome::kExhausted;
  }
  const SearchOutcome outcome = solve_parts(first, last);
  if (outcome == SearchOutcome::kExhausted) {
    remember(key);
    undo(mark);
  }
  return outcome;
}

// Solves what empty cuts separate one after the other; a failure of one is a failure of all.
SearchOutcome SectionSearch::solve_parts(std::int32_t first, std::int32_t last) {
  if (rules_.decomposition && !instance_.has_gaps) {
    std::int32_t begin = first;
    for (std::int32_t s = first; s + 1 < last; ++s) {
      if (crossing_[static_cast<std::size_t>(s)] != 0) continue;
      const SearchOutcome outcome = solve(begin, s + 1);
      if (outcome != SearchOutcome::kFound) return outcome;
      begin = s + 1;
    }
    if (begin != first) return solve(begin, last);
  }
  const std::int32_t section = choose(first, last);
  return section < 0 ? SearchOutcome::kFound : branch(first, last, section);
}

// The section to branch on. With gaps only the lowest level will do: there alone what stands on the
// floor leaves no room below itself.
std::int32_t SectionSearch::choose(std::int32_t first, std::int32_t last) const {
  std::int64_t lowest = kInfinity;
  for (std::int32_t s = first; s < last; ++s) {
    if (count_[static_cast<std::size_t>(s)] != 0)
      lowest = std::min(lowest, level_[static_cast<std::size_t>(s)]);
  }
  const auto level_at = [&](std::int32_t s) {
    return s < first || s >= last || count_[static_cast<std::size_t>(s)] == 0
               ? kInfinity
               : level_[static_cast<std::size_t>(s)];
  };
  const bool lowest_only = instance_.has_gaps || instance_.has_windows || !rules_.fail_first;
  Choice best;
  for (std::int32_t begin = first; begin < last;) {
    const std::int64_t level = level_at(begin);
    std::int32_t end = begin + 1;
    while (end < last && level_at(end) == level) ++end;
    const bool is_valley = level < level_at(begin - 1) && level < level_at(end);
    if (level != kInfinity && (lowest_only ? level == lowest : is_valley))
      weigh_valley(begin, end, best);
    begin = end;
  }
  return best.section;
}

void SectionSearch::weigh_valley(std::int32_t first, std::int32_t last, Choice& best) const {
  for (std::int32_t s = first; s < last; ++s) {
    const auto u = static_cast<std::size_t>(s);
    const std::int64_t budget = target_ - level_[u] - left_[u];
    const std::int64_t choices = standing_[u] + (budget > 0 ? 1 : 0);
    std::int64_t score = choices;
    std::int64_t second = budget;
    if (!rules_.fail_first) {
      score = second = 0;  // the first one
    } else if (variant_->section_choice == 1) {
      score = level_[u];
      second = choices;
    } else if (variant_->section_choice == 2) {
      score = budget;
      second = choices;
    }
    if (best.section < 0 || score < best.score ||
        (score == best.score && second < best.second_score))
      best = {s, score, second};
  }
}

// The lowest level at which something can stand in `section` if nothing stands on its floor. What
// stood on the floor must then rest on an item that does not reach into the section: were it to
// reach in, it would be lower there.
std::int64_t SectionSearch::waste_level(std::int32_t section) {
  const auto u = static_cast<std::size_t>(section);
  std::int64_t result = kInfinity;
  for (std::int32_t k = section_begin_[u]; k < section_begin_[u + 1]; ++k) {
    const std::int32_t item = section_items_[static_cast<std::size_t>(k)];
    const auto i = static_cast<std::size_t>(item);
    if (placed_[i]) continue;
    if (lowest_[i] > level_[u]) {
      result = std::min(result, lowest_[i]);
      continue;
    }
    if (instance_.items[i].fixed >= 0) continue;
    for (std::int32_t e = edge_begin_[i]; e < edge_begin_[i + 1]; ++e) {
      const Edge& edge = edges_[static_cast<std::size_t>(e)];
      const auto o = static_cast<std::size_t>(edge.other);
      if (placed_[o] || stands_in(edge.other, section)) continue;
      const std::int64_t rest = lowest_[o] + (instance_.has_windows ? 1 : instance_.items[o].size);
      result = std::min(result, round_up(rest, instance_.items[i].alignment));
    }
  }
  return result;
}

SearchOutcome SectionSearch::descend(std::int32_t first, std::int32_t last, std::size_t mark) {
  const SearchOutcome outcome = solve(first, last);
  if (outcome == SearchOutcome::kExhausted) undo(mark);
  return outcome;
}

SearchOutcome SectionSearch::branch(std::int32_t first, std::int32_t last, std::int32_t section) {
  const auto u = static_cast<std::size_t>(section);
  const std::size_t base = candidates_.size();
  const std::size_t mark = trail_.size();
  for (std::int32_t k = section_begin_[u]; k < section_begin_[u + 1]; ++k) {
    const std::int32_t item = section_items_[static_cast<std::size_t>(k)];
    const auto i = static_cast<std::size_t>(item);
    if (placed_[i] || lowest_[i] != level_[u]) continue;
    if (rules_.dominance && twin_[i] >= 0 && !placed_[static_cast<std::size_t>(twin_[i])]) continue;
    candidates_.push_back(item);
  }
  const auto& rank = variant_->rank;
  std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(base), candidates_.end(),
            [&](std::int32_t a, std::int32_t b) {
              return rank[static_cast<std::size_t>(a)] < rank[static_cast<std::size_t>(b)];
            });
  std::int64_t waste = waste_level(section);
  if (waste != kInfinity && waste + left_[u] > target_) {
    refuse(waste + left_[u]);
    waste = kInfinity;
  }
  SearchOutcome outcome = SearchOutcome::kExhausted;
  const auto try_waste = [&] {
    if (waste == kInfinity || outcome != SearchOutcome::kExhausted) return;
    if (raise(section, waste)) {
      outcome = descend(first, last, mark);
    } else {
      undo(mark);
    }
  };
  if (variant_->waste_first) try_waste();
  const std::size_t end = candidates_.size();
  for (std::size_t c = base; c < end && outcome == SearchOutcome::kExhausted; ++c) {
    if (place(candidates_[c])) {
      outcome = descend(first, last, mark);
    } else {
      undo(mark);
    }
  }
  if (!variant_->waste_first) try_waste();
  candidates_.resize(base);
  return outcome;
}

}  // namespace plimsoll::plan::layout_detail
