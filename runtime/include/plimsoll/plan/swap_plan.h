// SPDX-License-Identifier: Apache-2.0
// Which storages leave the device between which of their accesses, so that a step stays inside a
// budget with little traffic.
//
// Nouns: gap (the operators between two accesses of a storage), SwapEviction (a gap during which
// the storage is away), SwapPlan.
//
// Costs. An eviction copies `size_bytes` in before the access that ends its gap; nothing where no
// access follows. It copies `size_bytes` out unless the host copy is still good: a storage whose
// bytes have not changed since its last copy-out is not written twice, so of all evictions between
// two writes only the first pays. A persistent storage that no operator writes is therefore copied
// out once in its life and never in a steady step.
//
//     position      0   1   2   3   4   5   6   7
//     storage       W   .   .   R   .   .   R   .      W writes, R reads
//     evicted           ---         ---              first pays out + in, second pays in
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/plan/access_sequence.h"

namespace plimsoll::plan {

inline constexpr std::int64_t kNeverNeeded = -1;

// A storage is away between two accesses. Positions as in AccessSequence, but counted from the
// step of the access that the gap follows: 0 <= evict_after < n.
struct SwapEviction {
  SwapStorageId storage;
  // Which instance operator `evict_after` touched: its own step's or the previous step's.
  Lap lap = Lap::kThisStep;
  // The operator after which the storage may leave; -1 for a persistent storage that no operator
  // touches, which stays out for ever.
  std::int64_t evict_after = 0;
  // The position at which it must be back, > evict_after; >= n means in the next step.
  // kNeverNeeded: it stays out until it is released.
  std::int64_t needed_at = 0;
  // Room for overlap: its bytes must be gone when position `leave_before` runs, and there is room
  // for them again from position `return_from` on; evict_after < leave_before <= return_from <=
  // needed_at. If every eviction is away for [leave_before, return_from) alone, the budget holds
  // (where needed_at is kNeverNeeded, from leave_before on; return_from is then kNeverNeeded too).
  std::int64_t leave_before = 0;
  std::int64_t return_from = 0;
  bool copies_out = false;
  bool copies_in = false;
  friend bool operator==(const SwapEviction&, const SwapEviction&) = default;
};

// Invariants, which validate_swap_plan checks: resident_bytes[i] <= budget for every operator i;
// out_bytes and in_bytes are the sums over evictions that copy.
struct SwapPlan {
  bool is_feasible = false;
  // The least budget any plan can meet, and the first operator that needs so much: the distinct
  // bytes it touches, its scratch, and what is immovable and alive. Set in every case.
  std::int64_t minimum_budget_bytes = 0;
  SwapOpId pinned_by;
  // Per steady step.
  std::int64_t out_bytes = 0;
  std::int64_t in_bytes = 0;
  // Per operator, with every evicted storage away for its whole gap.
  std::vector<std::int64_t> resident_bytes;
  // Sorted by (evict_after, storage, lap).
  std::vector<SwapEviction> evictions;

  std::int64_t moved_bytes() const { return out_bytes + in_bytes; }
};

struct SwapOptions {
  // Rounds of the search for prices of memory per operator. More costs time in proportion; below
  // 300 the prices are rough and traffic a few percent higher; 0 is the greedy plan alone.
  int effort = 500;
  // Up to so many gaps at which the budget can bind, the prices of the linear program of
  // swap_bound.h are tried too: up to one percent less traffic, for 0.02 ms a gap, growing faster.
  // Where planning has a thread of its own, 10^4 is affordable.
  std::int64_t exact_prices_up_to_gaps = 1500;
};

// Plans the evictions of one steady step within `budget_bytes` (any value; one that is too small
// gives is_feasible false and no evictions).
// Cost: O(effort x (accesses + operators)) and the linear program, if any. No clock, no random
// source. About 5 us an access in all at the default effort.
// Determinism: the same sequence, budget and options give the same plan.
// Source: the gaps form a covering problem with intervals, as in offline caching with sizes
// (Bar-Noy et al., "A unified approach to approximating resource allocation and scheduling",
// J. ACM 2001), here with write-back costs shared by the gaps of a version. Prices of memory come
// from the volume algorithm on its Lagrangian (Barahona, Anbil 2000); gaps are then taken by copies
// per price relieved, and what later ones made needless is given back.
SwapPlan plan_swaps(const AccessSequence& sequence, std::int64_t budget_bytes,
                    const SwapOptions& options = {});

// Simulates the plan operator by operator, independently of the planner, and throws
// InvalidArgument with the first thing that is wrong: an eviction that is no gap of the sequence,
// that overlaps an access, is listed twice or is of an immovable storage; wrong copies, sums,
// resident bytes or windows; a budget exceeded. An infeasible plan must name the true minimum.
// Cost: O(evictions x operators), meant for tests and debug builds.
void validate_swap_plan(const AccessSequence& sequence, std::int64_t budget_bytes,
                        const SwapPlan& plan);

}  // namespace plimsoll::plan
