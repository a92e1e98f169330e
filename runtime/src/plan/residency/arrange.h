// SPDX-License-Identifier: Apache-2.0
// Addresses for a draft inside an arena of a given size, and its time with them.
//
//     low end   long-lived ->            ....            <- short-lived   small   high end
//
// In order of the steps, each block where it waits for nobody and the hole fits best. Where no hole
// is large enough although the free bytes are, blocks slide together first (a kMove each): so what
// the replay counted as fitting fits, holes and all. A move takes its time on the compute stream. A
// fetch that was moved forward waits for a hole, at most until it is needed.
//
// Noun: Arrangement.
#pragma once

#include <cstdint>

#include "draft.h"

namespace plimsoll::plan {

struct Arrangement {
  bool fits = false;    // never false where the draft's live bytes are within the capacity
  double total_ns = 0;  // no simulation of the plan takes longer
  std::int64_t moved_bytes = 0;
};

// Where `plan` is given it becomes the plan with addresses; its waits are still to be made.
// `give_up_ns`: ends, without fitting, where it will take at least so long.
// Cost: O(steps x holes). Deterministic.
Arrangement arrange(const Problem& problem, const Draft& draft, std::int64_t capacity_bytes,
                    double give_up_ns, Plan* plan = nullptr);

}  // namespace plimsoll::plan
