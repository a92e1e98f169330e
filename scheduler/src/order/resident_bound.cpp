// SPDX-License-Identifier: Apache-2.0
#include "resident_bound.h"

#include <algorithm>

namespace plimsoll::order {

std::int64_t start_end_bytes(const Problem& problem) {
  std::int64_t start = problem.base_bytes, end = problem.base_bytes;
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    if (problem.kept[v] != 0) end += problem.bytes[v];
    if (problem.from_start(v) && problem.survives(v)) start += problem.bytes[v];
  }
  return std::max(start, end);
}

ResidentBound resident_bound(const Problem& problem) {
  const std::int64_t throughout = problem.base_bytes;
  ResidentBound bound{start_end_bytes(problem), -1};
  for (std::int32_t o = 0; o < problem.op_count(); ++o) {
    std::int64_t bytes = throughout + problem.extra[o];
    for (const std::int32_t v : problem.results[o])
      if (problem.births[v].size() == 1) bytes += problem.bytes[v];
    for (const std::int32_t v : problem.operands[o])
      if (!problem.is_overwritten(v, o)) bytes += problem.bytes[v];
    if (bytes > bound.bytes) bound = {bytes, o};
  }
  return bound;
}

}  // namespace plimsoll::order
