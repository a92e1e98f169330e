// SPDX-License-Identifier: Apache-2.0
#include "diagnose.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "plimsoll/order/cut.h"

#include "resident_bound.h"

namespace plimsoll::order {
namespace {

// Operators with the highest run levels in `order`: one where cuts cost much, more where not.
void add_highest(const Problem& problem, const std::vector<std::int32_t>& order,
                 std::vector<std::int32_t>& ops) {
  const Profile levels = profile(problem, order);
  std::vector<std::int32_t> positions(order.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::size_t most = order.size() <= 4000 ? 48 : 1;
  const std::size_t count = std::min(most, order.size());
  std::partial_sort(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(count),
                    positions.end(), [&](std::int32_t a, std::int32_t b) {
                      return levels.run[a] != levels.run[b] ? levels.run[a] > levels.run[b] : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i) ops.push_back(order[positions[i]]);
}

}  // namespace

void diagnose(const Problem& problem, std::span<const std::int32_t> suspects, Stopper& stopper,
              Result& result) {
  if (result.order.empty()) return;
  std::vector<std::int32_t> ops(suspects.begin(), suspects.end());
  if (result.bound_op >= 0) ops.push_back(result.bound_op);
  add_highest(problem, result.order, ops);
  CutOptions options;
  options.with_storages = true;
  options.stop = [&stopper] { return stopper(); };
  for (const std::int32_t op : ops) {
    if (stopper() && result.pinned_by.op >= 0) break;
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
  } else if (result.proof != Proof::kResident ||
             result.lower_bound_bytes > start_end_bytes(problem)) {
    // What a fused operator touches, or its cut, is no bound that the graph itself shows.
    result.proof = Proof::kExhausted;
  }
}

}  // namespace plimsoll::order
