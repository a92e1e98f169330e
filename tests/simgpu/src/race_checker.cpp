// SPDX-License-Identifier: Apache-2.0
#include "race_checker.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace plimsoll::simgpu {
namespace {

constexpr std::size_t kKeptRaces = 200;

}  // namespace

std::string Race::text() const {
  std::ostringstream out;
  out << second_operation << (second_writes ? " writes" : " reads") << " on " << second_stream
      << " what " << first_operation << (first_writes ? " writes" : " reads") << " on "
      << first_stream << ", and nothing orders them; " << end - begin << " bytes at 0x" << std::hex
      << begin;
  return out.str();
}

void VectorClock::join(const VectorClock& other) {
  for (std::size_t i = 0; i < ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

void RaceChecker::issue(int queue, std::string_view operation,
                        std::span<const RangeAccess> accesses,
                        std::span<const VectorClock> finished) {
  VectorClock& clock = queues_[static_cast<std::size_t>(queue)];
  clock.join(host_);
  const Mark mark{queue, ++clock.of(queue), interned(operation)};
  VectorClock knows = clock;
  for (const VectorClock& event : finished) knows.join(event);
  for (const RangeAccess& access : accesses) apply(access, mark, knows);
}

void RaceChecker::access_from_host(std::string_view operation,
                                   std::span<const RangeAccess> accesses,
                                   std::span<const VectorClock> finished) {
  const Mark mark{VectorClock::kHost, ++host_.of(VectorClock::kHost), interned(operation)};
  VectorClock knows = host_;
  for (const VectorClock& event : finished) knows.join(event);
  for (const RangeAccess& access : accesses) apply(access, mark, knows);
}

VectorClock RaceChecker::record(int queue) const {
  VectorClock clock = queues_[static_cast<std::size_t>(queue)];
  clock.join(host_);
  return clock;
}

void RaceChecker::wait(int queue, const VectorClock& event) {
  queues_[static_cast<std::size_t>(queue)].join(event);
}

bool RaceChecker::is_known_to_host(ByteRange range) const {
  const auto is_known = [this](const Mark& mark) { return mark.tick <= host_.of(mark.actor); };
  auto cell = cells_.upper_bound(range.begin);
  if (cell != cells_.begin() && std::prev(cell)->second.end > range.begin) --cell;
  for (; cell != cells_.end() && cell->first < range.end; ++cell) {
    if (!is_known(cell->second.write)) return false;
    if (!std::all_of(cell->second.reads.begin(), cell->second.reads.end(), is_known)) return false;
  }
  return true;
}

void RaceChecker::forget(ByteRange range) {
  split(range.begin);
  split(range.end);
  cells_.erase(cells_.lower_bound(range.begin), cells_.lower_bound(range.end));
}

std::vector<Race> RaceChecker::take_races() { return std::exchange(races_, {}); }

const std::string* RaceChecker::interned(std::string_view operation) {
  auto found = operations_.find(operation);
  if (found == operations_.end()) found = operations_.emplace(operation).first;
  return &*found;
}

void RaceChecker::split(std::uintptr_t address) {
  auto after = cells_.upper_bound(address);
  if (after == cells_.begin()) return;
  auto cell = std::prev(after);
  if (cell->first == address || cell->second.end <= address) return;
  Cell right = cell->second;
  cell->second.end = address;
  cells_.emplace_hint(after, address, std::move(right));
}

RaceChecker::Cells::iterator RaceChecker::cover(ByteRange range) {
  split(range.begin);
  split(range.end);
  auto cell = cells_.lower_bound(range.begin);
  std::uintptr_t position = range.begin;
  while (position < range.end) {
    if (cell == cells_.end() || cell->first > position) {
      const std::uintptr_t end =
          cell == cells_.end() ? range.end : std::min(range.end, cell->first);
      cell = cells_.emplace_hint(cell, position, Cell{end, {}, {}});
    }
    position = cell->second.end;
    ++cell;
  }
  return cells_.find(range.begin);
}

void RaceChecker::check(const Mark& before, bool before_writes, const RangeAccess& access,
                        const Mark& mark, const VectorClock& knows, ByteRange cell) {
  if (before.tick == 0 || before.actor == mark.actor) return;
  if (before.tick <= knows.of(before.actor)) return;
  ++counts_.races;
  if (races_.size() >= kKeptRaces) return;
  races_.push_back({*before.operation, queue_name(before.actor), *mark.operation,
                    queue_name(mark.actor), before_writes, access.writes, cell.begin, cell.end});
}

void RaceChecker::apply(const RangeAccess& access, const Mark& mark, const VectorClock& knows) {
  const ByteRange range = access.range;
  if (range.begin >= range.end) return;
  ++counts_.accesses;
  const auto first = cover(range);
  const auto last = cells_.lower_bound(range.end);
  for (auto cell = first; cell != last; ++cell) {
    const ByteRange bytes{cell->first, cell->second.end};
    check(cell->second.write, true, access, mark, knows, bytes);
    if (!access.writes) {
      auto& reads = cell->second.reads;
      const auto mine = std::find_if(reads.begin(), reads.end(),
                                     [&](const Mark& read) { return read.actor == mark.actor; });
      if (mine == reads.end()) {
        reads.push_back(mark);
      } else {
        *mine = mark;
      }
      continue;
    }
    for (const Mark& read : cell->second.reads) check(read, false, access, mark, knows, bytes);
  }
  if (!access.writes) return;
  // One cell for all that was written: blocks that are used again whole stay one cell.
  first->second = Cell{range.end, mark, {}};
  cells_.erase(std::next(first), last);
}

}  // namespace plimsoll::simgpu
