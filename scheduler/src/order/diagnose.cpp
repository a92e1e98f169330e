// SPDX-License-Identifier: Apache-2.0
#include "diagnose.h"

#include <algorithm>
#include <vector>

#include "plimsoll/order/cut.h"

namespace plimsoll::order {

void diagnose(const Problem& problem, std::span<const std::int32_t> suspects, Stopper& stopper,
              Result& result) {
  if (result.order.empty()) return;
  std::vector<std::int32_t> ops(suspects.begin(), suspects.end());
  if (result.bound_op >= 0) ops.push_back(result.bound_op);
  ops.push_back(result.order[profile(problem, result.order).peak_position]);
  CutOptions options;
  options.with_storages = true;
  options.stop = [&stopper] { return stopper(); };
  for (const std::int32_t op : ops) {
    CutBound cut = cut_bound(problem, op, options);
    if (cut.bytes <= result.pinned_by.bytes) continue;
    result.pinned_by.op = op;
    result.pinned_by.bytes = cut.bytes;
    result.pinned_by.storages = std::move(cut.storages);
    if (cut.bytes >= result.lower_bound_bytes) break;
  }
  result.bound_op = -1;
  if (result.pinned_by.bytes >= result.lower_bound_bytes) {
    result.bound_op = result.pinned_by.op;
    result.lower_bound_bytes = std::min(result.pinned_by.bytes, result.peak_bytes);
    if (result.proof != Proof::kResident) result.proof = Proof::kCut;
  } else if (result.proof == Proof::kCut) {
    result.proof = Proof::kExhausted;
  }
}

}  // namespace plimsoll::order
