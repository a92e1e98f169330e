// SPDX-License-Identifier: Apache-2.0
// The reductions, all of which keep the optimum: maximal sections, bottom strips, empty cuts,
// scaling.
//
// Nouns: Part, Reduction.
//
//      |  b   |     c    |          a lives all the time: it goes to the bottom; above it nothing
//      |      |   | d |  |          is live across t: two parts, each on base size(a)
//      +------+----------+
//      |         a       |
//      +-----------------+
//             t
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plimsoll/plan/layout.h"

#include "plan/layout/instance.h"

namespace plimsoll::plan::layout_detail {

// An independent packing problem whose address 0 is `base` units above the arena's.
struct Part {
  Instance instance;
  std::int64_t base = 0;
  std::int64_t load = 0;  // of the part alone
};

struct Reduction {
  std::int64_t unit_bytes = 1;  // every length is a multiple
  std::vector<Part> parts;
  // Items placed outright, (origin, offset in units).
  std::vector<std::pair<std::int32_t, std::int64_t>> placed;
  std::int64_t placed_top = 0;  // units
};

// Reduces one arena. With `enabled` off there is one part, unscaled. Origins are buffer indices;
// a reserved range's is its index plus the number of buffers.
Reduction reduce(const LayoutProblem& problem, std::int32_t arena, bool enabled);

}  // namespace plimsoll::plan::layout_detail
