// SPDX-License-Identifier: Apache-2.0
#include "exhaustive_swaps.h"

#include <algorithm>
#include <limits>

namespace plimsoll::plan::testing {
namespace {

constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max() / 4;

SwapStorageId storage_at(std::int64_t index) {
  return SwapStorageId(static_cast<std::size_t>(index));
}

// What storage `s` moves when it is away in the gaps [first, first + count) marked in `mask`.
std::int64_t moved_by(const AccessSequence& sequence, SwapStorageId storage,
                      const std::vector<SmallGap>& gaps, std::uint32_t mask) {
  const auto accesses = sequence.accesses(storage);
  const StorageLife& life = sequence.life(storage);
  const bool is_persistent = life.kind == StorageKind::kPersistent;
  bool is_written = false;
  for (const TimedAccess& access : accesses) is_written |= access.writes;
  if (accesses.empty()) return 0;
  bool is_good = !is_written;
  std::int64_t moved = 0;
  for (int walk = is_persistent ? 0 : 1; walk < 2; ++walk) {
    moved = 0;
    for (const TimedAccess& access : accesses) {
      if (access.writes) is_good = false;
      for (std::size_t g = 0; g < gaps.size(); ++g) {
        if ((mask >> g & 1) == 0 || gaps[g].storage != storage || gaps[g].after != access.position)
          continue;
        if (!is_good) moved += life.size_bytes;
        if (gaps[g].returns) moved += life.size_bytes;
        is_good = true;
      }
    }
  }
  return moved;
}

bool fits(const AccessSequence& sequence, std::int64_t budget_bytes,
          const std::vector<SmallGap>& gaps, std::uint32_t mask) {
  const std::int64_t n = sequence.op_count();
  std::vector<std::int64_t> held(static_cast<std::size_t>(n));
  for (std::size_t op = 0; op < held.size(); ++op) held[op] = sequence.scratch_bytes(SwapOpId(op));
  for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
    const StorageLife& life = sequence.life(storage_at(s));
    for (std::int64_t p = life.birth; p <= life.death; ++p)
      held[static_cast<std::size_t>(p % n)] += life.size_bytes;
  }
  for (std::size_t g = 0; g < gaps.size(); ++g)
    if ((mask >> g & 1) != 0)
      for (std::int64_t p = gaps[g].after + 1; p < gaps[g].until; ++p)
        held[static_cast<std::size_t>(p % n)] -= sequence.life(gaps[g].storage).size_bytes;
  return std::ranges::max(held) <= budget_bytes;
}

// One storage's share of a play state: bit 0 on the device, bit 1 a good copy on the host.
constexpr int kDevice = 1;
constexpr int kHost = 2;

// Moves that turn place `from` into `to`, in copies of the storage; < 0 where none do.
int copies_between(int from, int to) {
  int copies = 0;
  if ((to & kHost) != 0 && (from & kHost) == 0) {
    if ((from & kDevice) == 0) return -1;
    ++copies;
  }
  if ((to & kDevice) != 0 && (from & kDevice) == 0) ++copies;
  return copies;
}

struct Play {
  const AccessSequence& sequence;
  std::int64_t budget_bytes;

  std::size_t state_count() const {
    std::size_t count = 1;
    for (std::int64_t s = 0; s < sequence.storage_count(); ++s) count *= 4;
    return count;
  }
  static int place(std::size_t state, std::int64_t s) {
    return static_cast<int>(state >> (2 * s) & 3);
  }

  std::int64_t move_bytes(std::size_t from, std::size_t to) const {
    std::int64_t bytes = 0;
    for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
      const int copies = copies_between(place(from, s), place(to, s));
      if (copies < 0 || place(to, s) == 0 || place(from, s) == 0) return kImpossible;
      bytes += copies * sequence.life(storage_at(s)).size_bytes;
    }
    return bytes;
  }

  // The state after operator `op` ran in `state`; nothing where it cannot.
  std::optional<std::size_t> run(std::size_t state, std::int64_t op) const {
    std::int64_t held = sequence.scratch_bytes(SwapOpId(static_cast<std::size_t>(op)));
    std::size_t after = state;
    for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
      const StorageLife& life = sequence.life(storage_at(s));
      const bool on_device = (place(state, s) & kDevice) != 0;
      if (!on_device && life.mobility == Mobility::kImmovable) return std::nullopt;
      if (on_device) held += life.size_bytes;
      for (const TimedAccess& access : sequence.accesses(storage_at(s))) {
        if (access.position != op) continue;
        if (!on_device) return std::nullopt;
        if (access.writes) after &= ~(static_cast<std::size_t>(kHost) << (2 * s));
      }
    }
    if (held > budget_bytes) return std::nullopt;
    return after;
  }
};

}  // namespace

std::vector<SmallGap> list_gaps(const AccessSequence& sequence) {
  std::vector<SmallGap> gaps;
  const std::int64_t n = sequence.op_count();
  for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
    const SwapStorageId storage = storage_at(s);
    const StorageLife& life = sequence.life(storage);
    if (life.mobility == Mobility::kImmovable || life.size_bytes == 0) continue;
    if (sequence.accesses(storage).empty())
      gaps.push_back({.storage = storage, .after = -1, .until = n, .returns = false});
    for (const TimedAccess& access : sequence.accesses(storage)) {
      const std::int64_t next = sequence.next_access(storage, access.position);
      const std::int64_t until = next == kNeverAccessed ? life.death + 1 : next;
      if (until > access.position + 1)
        gaps.push_back({.storage = storage,
                        .after = access.position,
                        .until = until,
                        .returns = next != kNeverAccessed});
    }
  }
  return gaps;
}

std::optional<std::int64_t> least_over_subsets(const AccessSequence& sequence,
                                               std::int64_t budget_bytes) {
  const std::vector<SmallGap> gaps = list_gaps(sequence);
  std::optional<std::int64_t> least;
  for (std::uint32_t mask = 0; mask < 1U << gaps.size(); ++mask) {
    if (!fits(sequence, budget_bytes, gaps, mask)) continue;
    std::int64_t moved = 0;
    for (std::int64_t s = 0; s < sequence.storage_count(); ++s)
      moved += moved_by(sequence, storage_at(s), gaps, mask);
    if (!least || moved < *least) least = moved;
  }
  return least;
}

std::optional<std::int64_t> least_over_plays(const AccessSequence& sequence,
                                             std::int64_t budget_bytes) {
  const Play play{.sequence = sequence, .budget_bytes = budget_bytes};
  const std::size_t states = play.state_count();
  std::int64_t least = kImpossible;
  for (std::size_t start = 0; start < states; ++start) {
    std::vector<std::int64_t> cost(states, kImpossible);
    cost[start] = 0;
    for (std::int64_t op = 0; op < sequence.op_count(); ++op) {
      std::vector<std::int64_t> next(states, kImpossible);
      for (std::size_t from = 0; from < states; ++from) {
        if (cost[from] >= kImpossible) continue;
        for (std::size_t to = 0; to < states; ++to) {
          const std::int64_t moved = play.move_bytes(from, to);
          const auto after = moved < kImpossible ? play.run(to, op) : std::nullopt;
          if (after) next[*after] = std::min(next[*after], cost[from] + moved);
        }
      }
      cost = std::move(next);
    }
    least = std::min(least, cost[start]);
  }
  if (least >= kImpossible) return std::nullopt;
  return least;
}

}  // namespace plimsoll::plan::testing
