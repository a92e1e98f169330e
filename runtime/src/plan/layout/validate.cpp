// SPDX-License-Identifier: Apache-2.0
// Shares nothing with the planners but the problem's definition: gaps are read here once more.
#include <algorithm>
#include <map>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/plan/layout_validate.h"

namespace plimsoll::plan {
namespace {

using Kind = LayoutViolation::Kind;

struct Block {
  Interval time;
  Interval addresses;
  std::int64_t owner = 0;
  std::int32_t arena = 0;
};

std::string name_of(const LayoutProblem& problem, std::int64_t owner) {
  const auto index = static_cast<std::size_t>(owner);
  if (index >= problem.buffers.size())
    return fmt::format("reserved range {}", index - problem.buffers.size());
  if (index < problem.names.size()) return fmt::format("buffer '{}'", problem.names[index]);
  return fmt::format("buffer {}", index);
}

// The bytes of buffer `index` that are taken at time `t`, relative to its offset.
Interval kept_at(const LayoutBuffer& b, std::int64_t t) {
  for (const LayoutGap& gap : b.gaps) {
    if (gap.time.contains(t)) return gap.kept;
  }
  return {0, b.size_bytes};
}

std::vector<Block> blocks_of(const LayoutProblem& problem,
                             const std::vector<std::int64_t>& offsets_bytes) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const LayoutBuffer& b = problem.buffers[i];
    std::vector<std::int64_t> times{b.lifetime.begin, b.lifetime.end};
    for (const LayoutGap& gap : b.gaps) {
      times.push_back(gap.time.begin);
      times.push_back(gap.time.end);
    }
    std::sort(times.begin(), times.end());
    for (std::size_t t = 1; t < times.size(); ++t) {
      const Interval time{times[t - 1], times[t]};
      if (time.empty()) continue;
      const Interval kept = kept_at(b, time.begin);
      const Interval addresses{offsets_bytes[i] + kept.begin, offsets_bytes[i] + kept.end};
      if (!addresses.empty())
        blocks.push_back({time, addresses, static_cast<std::int64_t>(i), b.arena});
    }
  }
  for (std::size_t i = 0; i < problem.reserved.size(); ++i) {
    const ReservedRange& r = problem.reserved[i];
    if (!r.time.empty() && !r.addresses.empty())
      blocks.push_back(
          {r.time, r.addresses, static_cast<std::int64_t>(problem.buffers.size() + i), r.arena});
  }
  return blocks;
}

LayoutViolation clash(const LayoutProblem& problem, const Block& a, const Block& b) {
  const bool swapped = b.owner < a.owner;
  const Block& first = swapped ? b : a;
  const Block& second = swapped ? a : b;
  const bool reserved = second.owner >= static_cast<std::int64_t>(problem.buffers.size());
  return {reserved ? Kind::kReserved : Kind::kOverlap, first.owner, second.owner,
          fmt::format("{} at [{}, {}) and {} at [{}, {}) are both live in [{}, {})",
                      name_of(problem, first.owner), first.addresses.begin, first.addresses.end,
                      name_of(problem, second.owner), second.addresses.begin, second.addresses.end,
                      std::max(a.time.begin, b.time.begin), std::min(a.time.end, b.time.end))};
}

std::optional<LayoutViolation> check_one(const LayoutProblem& problem, std::size_t index,
                                         std::int64_t offset) {
  const LayoutBuffer& b = problem.buffers[index];
  const auto owner = static_cast<std::int64_t>(index);
  const auto wrong = [&](Kind kind, const std::string& what) {
    return LayoutViolation{kind, owner, -1, fmt::format("{}: {}", name_of(problem, owner), what)};
  };
  std::int64_t top = 0;
  if (offset < 0 || __builtin_add_overflow(offset, b.size_bytes, &top))
    return wrong(Kind::kNegative,
                 fmt::format("offset {} has to be 0 or more and its top in 64 bits", offset));
  if (b.fixed_offset_bytes != kNoOffset && offset != b.fixed_offset_bytes)
    return wrong(Kind::kFixed, fmt::format("offset {} has to be {}", offset, b.fixed_offset_bytes));
  if (offset % b.alignment_bytes != 0)
    return wrong(Kind::kAlignment,
                 fmt::format("offset {} has to be a multiple of {}", offset, b.alignment_bytes));
  const std::int64_t capacity = problem.arenas[static_cast<std::size_t>(b.arena)].capacity_bytes;
  if (b.size_bytes > 0 && !b.lifetime.empty() && top > capacity)
    return wrong(Kind::kCapacity,
                 fmt::format("top {} has to be at most the capacity {}", top, capacity));
  return std::nullopt;
}

std::optional<LayoutViolation> check_each(const LayoutProblem& problem,
                                          const std::vector<std::int64_t>& offsets_bytes) {
  if (offsets_bytes.size() != problem.buffers.size())
    return LayoutViolation{
        Kind::kCount, -1, -1,
        fmt::format("{} offsets for {} buffers", offsets_bytes.size(), problem.buffers.size())};
  for (std::size_t i = 0; i < offsets_bytes.size(); ++i) {
    if (auto violation = check_one(problem, i, offsets_bytes[i])) return violation;
  }
  return std::nullopt;
}

}  // namespace

std::optional<LayoutViolation> validate_layout(const LayoutProblem& problem,
                                               const std::vector<std::int64_t>& offsets_bytes) {
  if (auto violation = check_each(problem, offsets_bytes)) return violation;
  const std::vector<Block> blocks = blocks_of(problem, offsets_bytes);
  for (std::size_t j = 1; j < blocks.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      if (blocks[i].arena == blocks[j].arena && blocks[i].time.overlaps(blocks[j].time) &&
          blocks[i].addresses.overlaps(blocks[j].addresses))
        return clash(problem, blocks[i], blocks[j]);
    }
  }
  return std::nullopt;
}

std::optional<LayoutViolation> validate_layout_sweep(
    const LayoutProblem& problem, const std::vector<std::int64_t>& offsets_bytes) {
  if (auto violation = check_each(problem, offsets_bytes)) return violation;
  const std::vector<Block> blocks = blocks_of(problem, offsets_bytes);
  struct Event {
    std::int64_t time;
    bool begins;  // ends sort before begins at equal time
    std::size_t block;
    auto operator<=>(const Event&) const = default;
  };
  std::vector<Event> events;
  events.reserve(2 * blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    events.push_back({blocks[i].time.begin, true, i});
    events.push_back({blocks[i].time.end, false, i});
  }
  std::sort(events.begin(), events.end());
  // Live blocks by (arena, first address). While they are disjoint, a new one can only meet its
  // neighbours.
  std::map<std::pair<std::int32_t, std::int64_t>, std::size_t> live;
  for (const Event& event : events) {
    const Block& block = blocks[event.block];
    const std::pair key{block.arena, block.addresses.begin};
    if (!event.begins) {
      live.erase(key);
      continue;
    }
    const auto next = live.lower_bound(key);
    if (next != live.end() && next->first.first == block.arena &&
        blocks[next->second].addresses.overlaps(block.addresses))
      return clash(problem, blocks[next->second], block);
    if (next != live.begin()) {
      const Block& previous = blocks[std::prev(next)->second];
      if (previous.arena == block.arena && previous.addresses.overlaps(block.addresses))
        return clash(problem, previous, block);
    }
    live.emplace_hint(next, key, event.block);
  }
  return std::nullopt;
}

}  // namespace plimsoll::plan
