// SPDX-License-Identifier: Apache-2.0
// Says whether a plan is right, independently of every planner: the plan is replayed symbolically,
// each instance holding the set of values written into it.
//
// Nouns: PlanFault, PlanVerdict.
#pragma once

#include <cstdint>
#include <string>

#include "plimsoll/graph/graph.h"
#include "plimsoll/plan/plan.h"

namespace plimsoll::plan {

enum class PlanFault : std::uint8_t {
  kNone,
  kForm,       // ids out of range, wrong counts, waits that point forward or at a kFree
  kOrder,      // an op missing, run twice, or before one it depends on
  kOperand,    // an operand absent, or holding another version than the recorded one
  kRecompute,  // an op that may not run again, or has not run yet, or writes lasting state
  kLifetime,   // use after free, double free, bytes left behind, an illegal in-place result
  kHostCopy,   // a fetch of what is not on the host, or of a stale copy
  kOverlap,    // two live instances share a byte
  kAlignment,  // an address that is no multiple of the alignment, or below zero
  kBudget,     // the arena is larger than the budget, or another than the plan says
  kRace,       // two streams use the same bytes and nothing orders them
  kResult,     // at the end a lasting storage is not where it began, or not its last version
};
const char* plan_fault_name(PlanFault fault) noexcept;

struct PlanVerdict {
  PlanFault fault = PlanFault::kNone;
  std::int64_t step = -1;  // where; -1: not at one step
  std::string message;     // one sentence, empty where the plan is valid
  // Of a valid plan: the end of the highest bytes in use, which is its arena; aligned live bytes at
  // the worst step, without the holes between them; and the most bytes that copies take on the host
  // and in the file tier.
  std::int64_t peak_bytes = 0;
  std::int64_t live_bytes = 0;
  std::int64_t host_peak_bytes = 0;
  std::int64_t file_peak_bytes = 0;

  bool valid() const { return fault == PlanFault::kNone; }
};

// Cost: O(steps x (log of live instances + ranges freed and not yet used again)). Never throws for
// a wrong plan; pure.
PlanVerdict validate_plan(const graph::Graph& graph, const Plan& plan, std::int64_t budget_bytes);

}  // namespace plimsoll::plan
