// SPDX-License-Identifier: Apache-2.0
// The bound that costs one look at each operator.
#pragma once

#include <cstdint>

#include "plimsoll/order/problem.h"

namespace plimsoll::order {

struct ResidentBound {
  std::int64_t bytes = 0;
  std::int32_t op = -1;  // -1: what is live at the start or at the end
};

// The bytes live before the first operator or after the last, whichever are more. O(storages).
std::int64_t start_end_bytes(const Problem& problem);

// The most of: bytes live at the start, at the end, and what any operator touches. O(size).
ResidentBound resident_bound(const Problem& problem);

}  // namespace plimsoll::order
