// SPDX-License-Identifier: Apache-2.0
// A claim about an order, in a file, and the checker that believes nothing in it.
//
// Nouns: Certificate (the claim), Verdict (what the checker found).
//
// What each kind of bound asks of the checker:
//   start_end  the bytes live before the first step and after the last: added up again.
//   cut        one op; every order passes a state in which it runs. The checker computes the
//              cheapest such state again, as a minimum cut of its own network by its own max-flow.
//   exhausted  "a search rejected every order below the bound". Nothing is taken on trust from that
//              search: the checker searches again, at budget bound - 1, with its own simple
//              exhaustive search, and accepts only where that ends without an order. Where its
//              limits end it first, the bound counts as not checked, which is no acceptance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/order/result.h"

namespace plimsoll::order {

struct Certificate {
  enum class Kind : std::uint8_t { kStartEnd, kCut, kExhausted };
  std::uint64_t graph_digest = 0;
  std::vector<std::int32_t> order;  // op ids
  std::int64_t peak_bytes = 0;
  std::int64_t lower_bound_bytes = 0;
  Kind kind = Kind::kStartEnd;
  std::int32_t op = -1;  // kCut
  // kExhausted: steps of `order` at which every order of the graph has run the same set of ops.
  // They cut the search into pieces; the checker checks that claim first. May be empty.
  std::vector<std::int64_t> separators;
};

// A 64-bit digest (FNV-1a) of all that bears on memory: sizes, lifetimes, edges, candidates.
std::uint64_t graph_digest(const graph::Graph& graph);

// States a solver's result as a certificate. Errors: InvalidArgument where the result has no order.
Certificate make_certificate(const graph::Graph& graph, const OrderResult& result);

// JSON with a checksum over everything else in it; read_certificate refuses unknown, missing and
// malformed keys and a wrong checksum. Errors: InvalidFile.
std::string write_certificate(const Certificate& certificate);
Certificate read_certificate(std::string_view text, const std::string& file);

struct VerifyLimits {
  std::int64_t max_states = 5'000'000;        // of the exhaustive search, in all
  std::int64_t max_memory_bytes = 1LL << 30;  // for the states it remembers
  double seconds = -1;                        // wall time of the exhaustive search; < 0: no limit
};

struct Verdict {
  bool peak_valid = false;
  bool bound_valid = false;
  bool bound_checked = false;   // false: a limit ended the check, or the peak had failed already
  std::int64_t peak_bytes = 0;  // replayed; 0 where the order is none
  std::int64_t lower_bound_bytes = 0;  // the claim
  std::int64_t states = 0;             // visited by the exhaustive search
  std::string reason;                  // empty where valid
  bool valid() const { return peak_valid && bound_valid; }
};

// Checks a certificate against a graph. Shares the graph's accessors with the solvers and nothing
// else: own replay, own network, own search. Cost: replay O(ops x storages touched), cut one
// max-flow on O(ops + storages) nodes, search exponential within its limits.
Verdict verify(const graph::Graph& graph, const Certificate& certificate,
               const VerifyLimits& limits = {});

}  // namespace plimsoll::order
