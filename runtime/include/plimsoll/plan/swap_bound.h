// SPDX-License-Identifier: Apache-2.0
// The least traffic that any schedule of moves needs for a sequence and a budget.
//
// Noun: SwapBound.
//
// What is bounded: copies out plus copies in of one steady step, for every schedule that repeats
// from step to step (or on average, for one that does not), whatever it moves, when, and in which
// pieces: a storage may be away for any part of a gap, any fraction of its bytes may be away, it
// may be copied out early and kept on both sides, fetched and evicted again. It must only
//   (1) have all of a storage's bytes on the device while an operator touches it,
//   (2) lose no byte of a storage that lives, whether or not an operator will touch it again,
//   (3) copy each byte that leaves out, unless it was copied out since it was last written,
//   (4) hold at most `budget` bytes, scratch included, while an operator runs.
// Not bounded: recomputing, compressing, or knowing that a write will overwrite all of a storage.
//
// Proof. Let b be the size of the storage of gap g, x_g the fraction of its bytes that are away
// during some operator of g. By (1) those bytes were on the device before g and are there after it
// (if an access follows), so g copies in b x_g at least; by (2) and (3) the version v of g (the
// gaps between two writes) copies out b max{x_g : g in v} at least. By (4), in operator i,
//     sum over gaps g around i of b x_g  >=  alive_i - budget  =: d_i.                          (*)
// So the least traffic is at least the value of the linear program
//     min  sum_g in_g x_g + sum_v out_v y_v,   (*) for all i,   0 <= x_g <= y_v <= 1 for g in v.
// For any prices p_i >= 0 its value is at least
//     L(p) = sum_i p_i d_i + sum_v min(0, out_v + sum_{g in v} min(0, in_g - b sum_{i in g} p_i)),
// and equal to it for the best p. Those come from HiGHS's dual solution, are rounded to multiples
// of 2^-40, and L is then computed in 128-bit integers: the result does not depend on any
// tolerance. `bytes` is L rounded up, since bytes are whole.
#pragma once

#include <cstdint>

#include "plimsoll/plan/access_sequence.h"

namespace plimsoll::plan {

struct SwapBound {
  bool is_feasible = false;  // as in SwapPlan, with the next two
  std::int64_t minimum_budget_bytes = 0;
  SwapOpId pinned_by;
  std::int64_t bytes = 0;  // out + in per steady step; 0 where infeasible
  // True where `bytes` is the linear program's own value, up to rounding. Otherwise the solver did
  // not finish, or the program has over 30,000 gaps and was not given to it, and `bytes` is a
  // weaker bound, just as certain.
  bool is_tight = false;
};

// Cost: one linear program with O(accesses + operators) nonzeros; tens of milliseconds for 10^3
// accesses, seconds for 10^4; beyond, 2000 rounds of the volume algorithm, linear in the accesses.
// Does not call back, holds no lock.
// Errors: InternalError where HiGHS refuses the model, which it does not.
// Determinism: repeats exactly (one solver thread, no time limit).
// Source: the relaxation is that of Albers, Arora, Khanna, "Page replacement for general caching
// problems" (SODA 1999), with a copy out per version added; weak duality as in any textbook.
SwapBound swap_lower_bound(const AccessSequence& sequence, std::int64_t budget_bytes);

}  // namespace plimsoll::plan
