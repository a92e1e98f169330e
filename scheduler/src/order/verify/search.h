// SPDX-License-Identifier: Apache-2.0
// The checker's exhaustive search.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/order/certificate.h"

namespace plimsoll::order::detail {

struct Rejection {
  enum class Outcome : std::uint8_t {
    kRejected,  // no order stays below the bound: the bound holds
    kRefuted,   // one does, or a separator is none
    kLimit,     // a limit came first: nothing is known
  };
  Outcome outcome = Outcome::kLimit;
  std::int64_t states = 0;
  std::string reason;  // empty where rejected
};

// Marks the steps (0 to the number of ops) before which every order of the graph has run the same
// ops as `order`: those beside an op that every other comes before or after, and both ends.
// O(ops + edges).
std::vector<std::uint8_t> find_separators(const graph::Graph& graph,
                                          const std::vector<std::int32_t>& order);

// Searches for an order whose peak is below the certificate's bound.
Rejection reject_below(const graph::Graph& graph, const Certificate& certificate,
                       const VerifyLimits& limits);

}  // namespace plimsoll::order::detail
