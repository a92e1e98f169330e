// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/liveness.h"

#include <algorithm>

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;

const char* peak_reason_name(PeakReason reason) noexcept {
  switch (reason) {
    case PeakReason::kRead:
      return "read";
    case PeakReason::kWritten:
      return "written";
    case PeakReason::kHeld:
      return "held";
    case PeakReason::kPersistent:
      return "persistent";
  }
  return "?";
}

namespace {

std::vector<std::int64_t> positions_of(const graph::Graph& graph, graph::OrderView order) {
  std::vector<std::int64_t> positions(graph.op_count());
  for (std::size_t i = 0; i < order.size(); ++i)
    positions[order[i].index()] = static_cast<std::int64_t>(i);
  return positions;
}

}  // namespace

Liveness analyze_liveness(const graph::Graph& graph, graph::OrderView order) {
  graph::check_order(graph, order);
  const auto position = positions_of(graph, order);
  const auto ops = static_cast<std::int64_t>(order.size());
  Liveness result;
  result.intervals.resize(graph.storage_count());
  result.takes_over.resize(graph.storage_count());
  std::vector<std::int64_t> change(order.size() + 1);
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    std::int64_t first = ops;
    for (const OpId o : graph.births(s)) first = std::min(first, position[o.index()]);
    if (graph.live_at_start(s)) first = 0;
    std::int64_t last = -1;
    OpId last_op;
    for (const OpId o : graph.touchers(s)) {
      if (position[o.index()] <= last) continue;
      last = position[o.index()];
      last_op = o;
    }
    std::int64_t end = last + 1;
    if (graph.live_at_end(s)) {
      end = ops;
    } else if (last_op.valid() && graph.inplace_storage(last_op) == s) {
      end = last;
      result.takes_over[graph.storage(graph.inplace_result(last_op)).index()] = s;
    }
    if (graph.live_at_start(s) && (last >= 0 || graph.live_at_end(s)))
      result.start_bytes += graph.size_bytes(s);
    if (end <= first) continue;
    result.intervals[i] = {first, end};
    change[std::size_t(first)] += graph.size_bytes(s);
    change[std::size_t(end)] -= graph.size_bytes(s);
  }
  result.peak_bytes = result.start_bytes;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    live += change[i];
    result.during_bytes.push_back(live + graph.workspace_bytes(order[i]));
    if (result.during_bytes.back() <= result.peak_bytes) continue;
    result.peak_bytes = result.during_bytes.back();
    result.peak_position = static_cast<std::int64_t>(i);
  }
  return result;
}

std::vector<PeakItem> explain_peak(const graph::Graph& graph, graph::OrderView order,
                                   const Liveness& liveness) {
  const auto position = positions_of(graph, order);
  const std::int64_t peak = std::max<std::int64_t>(0, liveness.peak_position);
  std::vector<PeakItem> items;
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const StorageId s(i);
    if (!liveness.intervals[i].contains(peak)) continue;
    PeakItem item{s, PeakReason::kHeld, OpId()};
    bool is_touched = false;
    for (const OpId o : graph.touchers(s)) {
      const std::int64_t at = position[o.index()];
      is_touched = is_touched || at == peak;
      if (at > peak && (!item.next_use.valid() || at < position[item.next_use.index()]))
        item.next_use = o;
    }
    if (is_touched) {
      const bool is_new = liveness.intervals[i].begin == peak && !graph.live_at_start(s);
      item.reason = is_new ? PeakReason::kWritten : PeakReason::kRead;
    } else if (!item.next_use.valid()) {
      item.reason = PeakReason::kPersistent;
    }
    items.push_back(item);
  }
  std::sort(items.begin(), items.end(), [&](const PeakItem& a, const PeakItem& b) {
    const std::int64_t left = graph.size_bytes(a.storage);
    const std::int64_t right = graph.size_bytes(b.storage);
    return left != right ? left > right : a.storage < b.storage;
  });
  return items;
}

}  // namespace plimsoll::plan
