// SPDX-License-Identifier: Apache-2.0
// First decisions: which gaps to drop and which to offload so that the curve of the order comes
// under a target.
//
// Nouns: GapCosts, ChooseOptions.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace plimsoll::plan {

// What closing a gap by recomputation costs: the writers, and those of sources that are dead by
// then; infinite where that is not allowed. By gap. Cost: O(touches).
std::vector<double> drop_costs_ns(const Problem& problem);

// In which order gaps are offered to the copy engines.
enum class OffloadOrder : std::uint8_t {
  kDearest,   // the dearest to rebuild per byte first, ties by length
  kLongest,   // the longest idle time first (Capuchin)
  kEarliest,  // in order of time (POFO: a prefix of the chain)
};

// The step is cut into so many equal windows, in each of which a copy engine has its time.
constexpr int kLinkWindows = 64;

struct ChooseOptions {
  std::int64_t target_bytes = 0;
  // The part of each copy engine's time that may be used.
  double link_share = 0;
  // How many windows a copy may wait for its engine: few where there is no room to wait in.
  int link_lag = kLinkWindows;
  bool may_recompute = true;
  OffloadOrder offload_order = OffloadOrder::kDearest;
  // What is dropped is rebuilt in segments of at most so many bytes: between them, where the least
  // crosses, everything that crosses is not dropped. 0: one segment.
  std::int64_t segment_bytes = 0;
};

// Offloads what its engines have time for, then drops the cheapest per byte, each only where a
// position of its gap is still above the target; then takes back what turned out not to be needed.
// Cost: O(gaps log ops). Deterministic.
Decisions choose_greedily(const Problem& problem, const std::vector<double>& drop_ns,
                          const ChooseOptions& options);

// The linear relaxation over gap choices by HiGHS, positions above the target added as cuts until
// none is left; fractions of at least one half are rounded up.
struct LinearChoice {
  bool solved = false;
  Decisions decisions;
  double bound_ns = 0;  // no plan in this order within the target is faster
};
LinearChoice choose_by_linear_program(const Problem& problem, const std::vector<double>& drop_ns,
                                      std::int64_t target_bytes, bool may_recompute,
                                      bool may_offload);

}  // namespace plimsoll::plan
