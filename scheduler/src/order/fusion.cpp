// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/fusion.h"

#include <numeric>

namespace plimsoll::order {

Fused fuse(const Problem& problem, const FusionRules& rules, const std::function<bool()>& stop) {
  Fused fused;
  fused.problem = problem;
  for (std::int32_t o = 0; o < problem.op_count(); ++o) fused.members.add_row({&o, 1});
  fused.storages.resize(problem.storage_count());
  std::iota(fused.storages.begin(), fused.storages.end(), 0);
  return fused;
}

std::vector<std::int32_t> unfuse(const Fused& fused, const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> result;
  for (const std::int32_t o : order) {
    const auto members = fused.members[o];
    result.insert(result.end(), members.begin(), members.end());
  }
  return result;
}

}  // namespace plimsoll::order
