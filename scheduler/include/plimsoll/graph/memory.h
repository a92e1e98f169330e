// SPDX-License-Identifier: Apache-2.0
// The memory model: the one function that says what an order of a graph costs in bytes. Every
// solver, planner, simulator and test uses it.
//
// Nouns: MemoryState (steps forward and back), MemoryProfile (a whole order).
//
//     during step   = live before + storages born here + workspace - storage overwritten here
//     after step    = live before + storages born here - storages whose last toucher ran here
//
//     bytes   during  ___
//                    |   |______ after = the next step's "before"
//       ___  after   |          |
//          |_________|          |___
//            step 0     step 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plimsoll/graph/graph.h"

namespace plimsoll::graph {

using OrderView = std::span<const OpId>;

// The live bytes while and after one op runs.
struct StepMemory {
  std::int64_t during_bytes = 0;
  std::int64_t after_bytes = 0;
};

// Live bytes along a growing and shrinking sequence of ops. The caller runs ready ops only and
// undoes them in reverse order. Cost: O(storages touched) a call. Single owner; the graph must
// outlive it.
class MemoryState {
 public:
  explicit MemoryState(const Graph& graph);

  std::int64_t live_bytes() const { return live_bytes_; }
  // The first op to touch a storage is one of its births, so touched means born.
  bool is_born(StorageId s) const {
    return graph_->live_at_start(s) ||
           waiting_[s.index()] < static_cast<std::int32_t>(graph_->touchers(s).size());
  }
  // How many ops that touch `s` have not run.
  std::int32_t waiting_touchers(StorageId s) const { return waiting_[s.index()]; }
  // What running `o` now would cost.
  StepMemory peek(OpId o) const;
  StepMemory run(OpId o);
  // Takes back the last run(o).
  void undo(OpId o);

 private:
  const Graph* graph_;
  std::int64_t live_bytes_ = 0;
  std::vector<std::int32_t> waiting_;
};

struct MemoryProfile {
  std::int64_t peak_bytes = 0;
  // The first step at which the peak stands; -1 where it is the state before the first step.
  std::int64_t peak_step = -1;
  std::int64_t start_bytes = 0;
  std::vector<std::int64_t> during_bytes;  // by step
  std::vector<std::int64_t> after_bytes;   // by step
};

// Throws InvalidArgument, naming step and op, where `order` is no permutation of the ops or breaks
// an edge. Cost: O(ops + edges).
void check_order(const Graph& graph, OrderView order);

// Adds up a whole order. Errors: as check_order. Cost: O(ops + edges + touched storages).
MemoryProfile memory_profile(const Graph& graph, OrderView order);

// The peak alone, without the curve. Errors: as check_order.
std::int64_t peak_bytes(const Graph& graph, OrderView order);

// The storages that are live while step `step` of `order` runs, ascending; the storage overwritten
// there is left out. Errors: as check_order. Cost: O(ops + edges).
std::vector<StorageId> live_storages(const Graph& graph, OrderView order, std::size_t step);

}  // namespace plimsoll::graph
