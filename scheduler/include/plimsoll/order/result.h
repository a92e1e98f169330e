// SPDX-License-Identifier: Apache-2.0
// What every order solver returns.
//
// Nouns: OrderResult (an order and its claim), BoundProof (why the lower bound holds).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/graph/graph.h"

namespace plimsoll::order {

enum class BoundProof : std::uint8_t {
  kNone,       // the bound is the trivial one (most bytes a single op touches, start, end)
  kCut,        // a minimum cut at one op: every order passes a state at least this high
  kExhausted,  // a search rejected every order below the bound
};

// An op whose level no order can lower below `bytes`, with what is live in its cheapest state.
struct StoragePin {
  graph::OpId op;
  std::int64_t bytes = 0;
  std::vector<graph::StorageId> storages;  // ascending
};

struct OrderResult {
  std::vector<graph::OpId> order;
  std::int64_t peak_bytes = 0;         // graph::peak_bytes(graph, order)
  std::int64_t lower_bound_bytes = 0;  // no order has a lower peak
  BoundProof proof = BoundProof::kNone;
  graph::OpId bound_op;        // kCut, kNone: the op whose cheapest state is the bound
  std::int64_t states = 0;     // search states visited
  bool stopped_early = false;  // a time limit or a cancellation ended the search
  std::int64_t program_peak_bytes = 0;
  double seconds = 0;
  std::int32_t fused_ops = 0;  // ops left after fusion
  std::string note;            // one line, where an algorithm could not do its work; else empty
  // Positions in `order`: every order runs the same ops before each of them, so that a proof can be
  // re-done on each stretch between two of them alone. Ascending, from 0 to the number of ops;
  // empty where the solver knows none.
  std::vector<std::int64_t> separators;
  StoragePin pinned_by;
  std::int64_t ilp_variables = 0;         // ilp: of the plain formulation
  std::int64_t ilp_variables_pruned = 0;  // ilp: that were solved for
  bool proved() const { return peak_bytes == lower_bound_bytes; }
};

std::string_view bound_proof_name(BoundProof proof);

// The order in which the graph was given. Its bound is the trivial one.
OrderResult program_order(const graph::Graph& graph);

// The trivial bound: the largest of the bytes live at the start, at the end, and, over all ops, of
// the distinct storages an op touches with its workspace and what is live throughout.
// Sets `op` to the op that gives it, or leaves it where start or end do. Cost: O(ops + edges).
std::int64_t trivial_bound(const graph::Graph& graph, graph::OpId* op);

}  // namespace plimsoll::order
