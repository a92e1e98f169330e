// SPDX-License-Identifier: Apache-2.0
// Which bytes must exist when, for a given order of a graph.
//
// Nouns: Liveness, PeakItem.
//
//     position    0   1   2   3   4        storage a: [0, 3), freed after op 2 (its last toucher)
//     a           [===========)            storage b: [2, 4), overwritten in place by c at 4
//     b                   [=======)        storage c: [4, 5)
//     c                           [===)
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/base/interval.h"
#include "plimsoll/graph/graph.h"
#include "plimsoll/graph/memory.h"

namespace plimsoll::plan {

// Why a storage is alive while the op at the peak runs.
enum class PeakReason : std::uint8_t {
  kRead,        // the op reads or overwrites it
  kWritten,     // the op writes it for the first time
  kHeld,        // nobody uses it now, but `next_use` will
  kPersistent,  // it lives to the end of the step
};
const char* peak_reason_name(PeakReason reason) noexcept;

struct PeakItem {
  graph::StorageId storage;
  PeakReason reason = PeakReason::kHeld;
  graph::OpId next_use;  // after the peak; invalid: none
};

struct Liveness {
  // By storage: the positions in `order` at which its bytes exist. Empty for a storage that nothing
  // touches and nobody keeps.
  std::vector<Interval> intervals;
  // By storage: the storage whose bytes it takes over in place, or invalid.
  std::vector<graph::StorageId> takes_over;
  std::vector<std::int64_t> during_bytes;  // by position, workspace included
  std::int64_t start_bytes = 0;            // before position 0
  std::int64_t peak_bytes = 0;
  std::int64_t peak_position = -1;  // -1: the state before position 0
};

// Cost: O(ops + edges + touches). Errors: InvalidArgument where `order` is no permutation of the
// ops or breaks an edge.
Liveness analyze_liveness(const graph::Graph& graph, graph::OrderView order);

// Who is alive at the peak, the largest first, ties by id. Cost: O(storages log storages).
std::vector<PeakItem> explain_peak(const graph::Graph& graph, graph::OrderView order,
                                   const Liveness& liveness);

}  // namespace plimsoll::plan
