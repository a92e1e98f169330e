// SPDX-License-Identifier: Apache-2.0
// The state of the exact search: what place, lift and recompute change, undo restores in reverse.
#include <algorithm>

#include "plan/layout/search.h"

namespace plimsoll::plan::layout_detail {
std::uint64_t mix_key(KeyKind kind, std::uint64_t x) {
  x += static_cast<std::uint64_t>(kind) * 0x9e3779b97f4a7c15ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return x;
}

void SectionSearch::reset(std::int64_t target) {
  target_ = target;
  trail_.clear();
  candidates_.clear();
  lone_.clear();
  dirty_.clear();
  std::fill(left_.begin(), left_.end(), 0);
  std::fill(count_.begin(), count_.end(), 0);
  std::fill(crossing_.begin(), crossing_.end(), 0);
  std::fill(item_hash_.begin(), item_hash_.end(), 0);
  std::fill(placed_.begin(), placed_.end(), 0);
  for (std::size_t i = 0; i < instance_.items.size(); ++i) {
    lowest_[i] = std::max<std::int64_t>(0, instance_.items[i].fixed);
    item_hash_[static_cast<std::size_t>(first_section_[i])] ^= item_key_[i];
    for (const Piece& p : instance_.pieces_of(i)) {
      for (std::int32_t s = p.first; s < p.last; ++s) {
        left_[static_cast<std::size_t>(s)] += p.high - p.low;
        ++count_[static_cast<std::size_t>(s)];
        if (s + 1 < p.last) ++crossing_[static_cast<std::size_t>(s)];
      }
    }
  }
  for (std::int32_t s = 0; s < instance_.sections; ++s) {
    level_[static_cast<std::size_t>(s)] = -1;
    standing_[static_cast<std::size_t>(s)] = 0;
    dirty_.push_back(s);
    is_dirty_[static_cast<std::size_t>(s)] = 1;
    if (count_[static_cast<std::size_t>(s)] == 1) lone_.push_back(s);
  }
}

// Notes that a branch needed `height`; always false, for `return refuse(...)`.
bool SectionSearch::refuse(std::int64_t height) {
  next_target_ = std::min(next_target_, height);
  return false;
}

// An item no longer stands at `old_lowest` in its sections. A section where nothing stands any more
// needs a new level.
void SectionSearch::leave_level(std::size_t item, std::int64_t old_lowest) {
  for (const Piece& p : instance_.pieces_of(item)) {
    for (std::int32_t s = p.first; s < p.last; ++s) {
      const auto u = static_cast<std::size_t>(s);
      if (level_[u] != old_lowest || --standing_[u] > 0 || is_dirty_[u]) continue;
      is_dirty_[u] = 1;
      dirty_.push_back(s);
    }
  }
}

void SectionSearch::return_to_level(std::size_t item, std::int64_t old_lowest) {
  for (const Piece& p : instance_.pieces_of(item)) {
    for (std::int32_t s = p.first; s < p.last; ++s) {
      const auto u = static_cast<std::size_t>(s);
      standing_[u] += level_[u] == old_lowest ? 1 : 0;
    }
  }
}

// Raises an item's lowest offset, if it is lower.
bool SectionSearch::lift(std::int32_t item, std::int64_t level) {
  const auto i = static_cast<std::size_t>(item);
  if (lowest_[i] >= level) return true;
  const Item& it = instance_.items[i];
  if (it.fixed >= 0) return false;  // built over: no height helps
  level = round_up(level, it.alignment);
  if (level + it.size > target_) return refuse(level + it.size);
  trail_.push_back({item, Trail::kLifted, lowest_[i]});
  leave_level(i, lowest_[i]);
  lowest_[i] = level;
  return true;
}

// Wastes a section up to `level`.
bool SectionSearch::raise(std::int32_t section, std::int64_t level) {
  const auto s = static_cast<std::size_t>(section);
  for (std::int32_t k = section_begin_[s]; k < section_begin_[s + 1]; ++k) {
    const std::int32_t item = section_items_[static_cast<std::size_t>(k)];
    if (!placed_[static_cast<std::size_t>(item)] && !lift(item, level)) return false;
  }
  return true;
}

// Places an item at its lowest offset.
bool SectionSearch::place(std::int32_t item) {
  const auto i = static_cast<std::size_t>(item);
  const std::int64_t at = lowest_[i];
  offset_[i] = at;
  placed_[i] = 1;
  trail_.push_back({item, Trail::kPlaced, at});
  item_hash_[static_cast<std::size_t>(first_section_[i])] ^= item_key_[i];
  leave_level(i, at);
  std::int64_t tallest = at + instance_.items[i].size;
  for (const Piece& p : instance_.pieces_of(i)) {
    for (std::int32_t s = p.first; s < p.last; ++s) {
      const auto u = static_cast<std::size_t>(s);
      left_[u] -= p.high - p.low;
      if (--count_[u] == 1) lone_.push_back(s);
      if (s + 1 < p.last) --crossing_[u];
      if (!instance_.has_windows) tallest = std::max(tallest, at + p.high + left_[u]);
    }
  }
  if (tallest > target_) return refuse(tallest);
  for (std::int32_t e = edge_begin_[i]; e < edge_begin_[i + 1]; ++e) {
    const Edge& edge = edges_[static_cast<std::size_t>(e)];
    if (!placed_[static_cast<std::size_t>(edge.other)] && !lift(edge.other, at + edge.lift))
      return false;
  }
  return true;
}

void SectionSearch::undo(std::size_t mark) {
  for (const std::int32_t s : dirty_) is_dirty_[static_cast<std::size_t>(s)] = 0;
  dirty_.clear();
  lone_.clear();
  while (trail_.size() > mark) {
    const Trail t = trail_.back();
    trail_.pop_back();
    const auto u = static_cast<std::size_t>(t.index);
    if (t.kind >= 0) {
      level_[u] = t.old_value;
      level_key_[u] = mix_level(t.index);
      standing_[u] = t.kind;
    } else if (t.kind == Trail::kLifted) {
      lowest_[u] = t.old_value;
      return_to_level(u, t.old_value);
    } else {
      unplace(u);
    }
  }
}

void SectionSearch::unplace(std::size_t item) {
  placed_[item] = 0;
  item_hash_[static_cast<std::size_t>(first_section_[item])] ^= item_key_[item];
  for (const Piece& p : instance_.pieces_of(item)) {
    for (std::int32_t s = p.first; s < p.last; ++s) {
      const auto u = static_cast<std::size_t>(s);
      left_[u] += p.high - p.low;
      ++count_[u];
      if (s + 1 < p.last) ++crossing_[u];
    }
  }
  return_to_level(item, lowest_[item]);
}

// An odd multiple of the level, so that level and section cannot stand in for one another.
std::uint64_t SectionSearch::mix_level(std::int32_t section) const {
  return mix_key(KeyKind::kLevel,
                 static_cast<std::uint64_t>(level_[static_cast<std::size_t>(section)]) *
                         0xda942042e4dd58b5ULL +
                     static_cast<std::uint64_t>(section));
}

// Finds a section's level, which no item left in it can undercut.
bool SectionSearch::recompute(std::int32_t section) {
  const auto u = static_cast<std::size_t>(section);
  std::int64_t level = kInfinity;
  std::int32_t standing = 0;
  for (std::int32_t k = section_begin_[u]; k < section_begin_[u + 1]; ++k) {
    const auto i = static_cast<std::size_t>(section_items_[static_cast<std::size_t>(k)]);
    if (placed_[i]) continue;
    if (lowest_[i] < level) {
      level = lowest_[i];
      standing = 0;
    }
    standing += lowest_[i] == level ? 1 : 0;
  }
  trail_.push_back({section, standing_[u], level_[u]});
  level_[u] = level;
  level_key_[u] = mix_level(section);
  standing_[u] = standing;
  return !rules_.section_inference || level + left_[u] <= target_ || refuse(level + left_[u]);
}

// Places what has nothing left beside it, brings the levels up to date, and computes the state's
// key: the items left and the levels say it all, except where alignments or windows take part.
bool SectionSearch::infer(std::int32_t first, std::int32_t last, std::uint64_t& key) {
  for (std::size_t l = 0; rules_.hatless && l < lone_.size(); ++l) {
    const std::int32_t section = lone_[l];
    if (count_[static_cast<std::size_t>(section)] != 1) continue;
    const std::int32_t item = only_item_of(section);
    if (is_alone(item) && !place(item)) return false;
  }
  lone_.clear();
  for (const std::int32_t section : dirty_) {
    is_dirty_[static_cast<std::size_t>(section)] = 0;
  }
  for (const std::int32_t section : dirty_) {
    if (count_[static_cast<std::size_t>(section)] != 0 && !recompute(section)) return false;
  }
  dirty_.clear();
  const bool key_needs_lowest = instance_.has_windows || instance_.has_alignment;
  key = mix_key(KeyKind::kRange,
                static_cast<std::uint64_t>(first) << 32 | static_cast<std::uint32_t>(last)) ^
        mix_key(KeyKind::kTarget, static_cast<std::uint64_t>(target_));
  for (std::int32_t s = first; s < last; ++s) {
    const auto u = static_cast<std::size_t>(s);
    if (count_[u] != 0) key ^= level_key_[u] ^ item_hash_[u];
  }
  for (std::size_t i = 0; key_needs_lowest && i < lowest_.size(); ++i) {
    if (!placed_[i] && first_section_[i] >= first && first_section_[i] < last)
      key ^= mix_key(KeyKind::kItem, item_key_[i] + static_cast<std::uint64_t>(lowest_[i]));
  }
  return true;
}

bool SectionSearch::stands_in(std::int32_t item, std::int32_t section) const {
  for (const Piece& p : instance_.pieces_of(static_cast<std::size_t>(item))) {
    if (p.first <= section && section < p.last) return true;
  }
  return false;
}

std::int32_t SectionSearch::only_item_of(std::int32_t section) const {
  std::int32_t k = section_begin_[static_cast<std::size_t>(section)];
  while (placed_[static_cast<std::size_t>(section_items_[static_cast<std::size_t>(k)])]) ++k;
  return section_items_[static_cast<std::size_t>(k)];
}

bool SectionSearch::is_alone(std::int32_t item) const {
  for (const Piece& p : instance_.pieces_of(static_cast<std::size_t>(item))) {
    for (std::int32_t s = p.first; s < p.last; ++s) {
      if (count_[static_cast<std::size_t>(s)] != 1) return false;
    }
  }
  return true;
}

}  // namespace plimsoll::plan::layout_detail
