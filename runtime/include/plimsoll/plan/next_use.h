// SPDX-License-Identifier: Apache-2.0
// What it costs to evict one idle block now, for steps whose plan is not known: the first step,
// and what follows a departure from the recorded sequence.
//
// Noun: eviction cost. It is additive over blocks, so a pool may compare windows of several
// victims; the least sum goes first. Costs of different functions are not comparable.
// All functions are pure. Cost: O(1).
#pragma once

#include <cstdint>
#include <limits>

namespace plimsoll::plan {

enum class HostCopy : std::uint8_t { kValid, kStale };

inline constexpr std::int64_t kNeverUsed = std::numeric_limits<std::int64_t>::max();

// Belady's rule weighted by size and copies: bytes that this eviction will move, divided by the
// number of operators for which its room is gained. `ops_until_use` >= 1 operators lie between now
// and the next access, kNeverUsed where none is known to come: then only the copy out is paid, and
// the room is gained for longer than any step.
// Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
// Systems Journal 1966; weights as in greedy interval covering.
double next_use_cost(std::int64_t size_bytes, std::int64_t ops_until_use, HostCopy host_copy);

// Least recently used, weighted likewise: the distance to the next use is taken to be the time
// since the last one. `ops_since_use` >= 0.
double least_recent_cost(std::int64_t size_bytes, std::int64_t ops_since_use, HostCopy host_copy);

}  // namespace plimsoll::plan
