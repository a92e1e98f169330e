// SPDX-License-Identifier: Apache-2.0
#include "edge_rules.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "state.h"

namespace plimsoll::order {
namespace {

using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;

constexpr std::size_t kMostSteps = 24;
constexpr std::size_t kMostReaders = 24;

// Follows edges forward for a bounded number of steps.
class Walk {
 public:
  explicit Walk(const Problem& problem)
      : problem_(problem), place_(problem.op_count()), seen_(problem.op_count(), 0) {
    for (std::int32_t i = 0; i < problem.op_count(); ++i) place_[problem.program[i]] = i;
  }
  std::int32_t place(std::int32_t op) const { return place_[op]; }

  // Whether a path of two edges or more leads from `from` to one of `targets` (ascending), as far
  // as the bound lets it see. `last` is the latest place of a target.
  bool passes_on(std::int32_t from, std::span<const std::int32_t> targets, std::int32_t last,
                 bool direct_counts) {
    ++stamp_;
    list_.assign(1, from);
    for (std::size_t i = 0; i < list_.size() && i < kMostSteps; ++i) {
      for (const std::int32_t s : problem_.after[list_[i]]) {
        if (place_[s] > last || seen_[s] == stamp_) continue;
        const bool is_target = std::binary_search(targets.begin(), targets.end(), s);
        if (is_target && (i > 0 || direct_counts)) return true;
        if (is_target) continue;
        seen_[s] = stamp_;
        list_.push_back(s);
      }
    }
    return false;
  }

 private:
  const Problem& problem_;
  std::vector<std::int32_t> place_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  std::vector<std::int32_t> list_;
};

bool drop_readers(Problem& problem, Walk& walk) {
  Pairs reads;
  bool changed = false;
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    const auto readers = problem.readers[v];
    std::int32_t last = -1;
    for (const std::int32_t r : readers) last = std::max(last, walk.place(r));
    for (const std::int32_t r : readers) {
      if (readers.size() > 1 && readers.size() <= kMostReaders && walk.place(r) != last &&
          walk.passes_on(r, readers, last, true)) {
        changed = true;
      } else {
        reads.emplace_back(v, r);
      }
    }
  }
  if (!changed) return false;
  problem.readers = Rows(problem.bytes.size(), reads);
  problem.operands = problem.readers.transposed(problem.extra.size());
  // What an operator no longer counts as reading it cannot be the last to read.
  Pairs overwrites;
  for (std::int32_t o = 0; o < problem.op_count(); ++o) {
    const auto operands = problem.operands[o];
    for (const std::int32_t v : problem.overwrites[o])
      if (std::binary_search(operands.begin(), operands.end(), v)) overwrites.emplace_back(o, v);
  }
  problem.overwrites = Rows(problem.extra.size(), overwrites);
  return true;
}

bool drop_transitive(Problem& problem, Walk& walk) {
  Pairs edges;
  bool changed = false;
  for (std::int32_t o = 0; o < problem.op_count(); ++o) {
    const auto after = problem.after[o];
    for (const std::int32_t s : after) {
      if (after.size() > 1 && problem.before[s].size() > 1 &&
          walk.passes_on(o, {&s, 1}, walk.place(s), false)) {
        changed = true;
      } else {
        edges.emplace_back(o, s);
      }
    }
  }
  if (!changed) return false;
  problem.after = Rows(problem.extra.size(), edges);
  problem.before = problem.after.transposed(problem.extra.size());
  return true;
}

// What makes two operators twins, as a hash; equality is checked in full.
std::uint64_t twin_hash(const Problem& problem, std::int32_t op) {
  std::uint64_t hash = mix_bits(static_cast<std::uint64_t>(problem.extra[op]));
  const auto add = [&hash](std::uint64_t x) { hash = mix_bits(hash ^ mix_bits(x)); };
  for (const std::int32_t i : problem.before[op]) add(i);
  add(~0ULL);
  for (const std::int32_t i : problem.after[op]) add(i);
  add(~0ULL);
  for (const std::int32_t v : problem.operands[op]) add(v);
  for (const std::int32_t v : problem.results[op]) add(problem.bytes[v]);
  return hash;
}

bool are_twins(const Problem& problem, std::int32_t a, std::int32_t b) {
  const auto same = [&](const Rows& rows) { return std::ranges::equal(rows[a], rows[b]); };
  if (problem.extra[a] != problem.extra[b] || !problem.overwrites[a].empty() ||
      !problem.overwrites[b].empty() || !same(problem.before) || !same(problem.after) ||
      !same(problem.operands))
    return false;
  const auto made_a = problem.results[a], made_b = problem.results[b];
  return std::ranges::equal(made_a, made_b, [&](std::int32_t v, std::int32_t w) {
    return problem.bytes[v] == problem.bytes[w] && problem.kept[v] == problem.kept[w] &&
           problem.births[v].size() == 1 && problem.births[w].size() == 1 &&
           std::ranges::equal(problem.readers[v], problem.readers[w]);
  });
}

bool order_twins(Problem& problem, const Walk& walk) {
  std::vector<std::tuple<std::uint64_t, std::int32_t, std::int32_t>> sorted;
  sorted.reserve(problem.op_count());
  for (std::int32_t o = 0; o < problem.op_count(); ++o)
    sorted.emplace_back(twin_hash(problem, o), walk.place(o), o);
  std::sort(sorted.begin(), sorted.end());
  Pairs added;
  for (std::size_t i = 0; i + 1 < sorted.size(); ++i) {
    const auto& [hash, place, op] = sorted[i];
    const auto& [next_hash, next_place, next] = sorted[i + 1];
    if (hash == next_hash && are_twins(problem, op, next)) added.emplace_back(op, next);
  }
  if (added.empty()) return false;
  for (std::int32_t o = 0; o < problem.op_count(); ++o)
    for (const std::int32_t s : problem.after[o]) added.emplace_back(o, s);
  std::sort(added.begin(), added.end());
  problem.after = Rows(problem.extra.size(), added);
  problem.before = problem.after.transposed(problem.extra.size());
  return true;
}

}  // namespace

bool drop_edges(Problem& problem, const FusionRules& rules) {
  Walk walk(problem);
  bool changed = false;
  if (rules.readers) changed |= drop_readers(problem, walk);
  if (rules.twins) changed |= order_twins(problem, walk);
  if (rules.transitive) changed |= drop_transitive(problem, walk);
  return changed;
}

}  // namespace plimsoll::order
