// SPDX-License-Identifier: Apache-2.0
// A graph in one order on one device, in the form the residency planner works on.
//
// Nouns: Problem, Gap, Decisions.
//
//     storage s   use -------------- gap -------------- use      keep, drop (and rebuild before the
//     position     p                                     q       next use) or offload
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/plan/device_model.h"
#include "plimsoll/plan/plan.h"

namespace plimsoll::plan {

enum class Choice : std::uint8_t { kKeep, kDrop, kOffload };

// The idle stretch of a storage between two positions that touch it, p < q.
struct Gap {
  graph::StorageId storage;
  std::int32_t from = 0;  // p
  std::int32_t to = 0;    // q
};

// An op's attribute "workspace_choices" lists pairs (bytes, time in thousandths of its cost).
struct WorkspaceChoice {
  std::int64_t bytes = 0;
  double cost_ns = 0;
};

// What an op does to a storage it touches.
struct Touch {
  graph::StorageId storage;
  bool reads = false;  // or writes over what is there
  bool writes = false;
  bool lasts = false;  // writes what was there from the start: not to be repeated
};

// One choice for each Problem::gaps.
using Decisions = std::vector<Choice>;

struct Problem {
  const graph::Graph* graph = nullptr;
  const DeviceModel* device = nullptr;
  std::vector<graph::OpId> order;
  std::vector<std::int32_t> position;  // by op
  std::vector<double> cost_ns;         // by op
  std::vector<double> start_ns;        // by position: all costs before it; one more for the end
  std::vector<std::int64_t> workspace_bytes;  // by op: the least it can work with
  // By op: workspaces that make it faster, by size; empty for most. cost_ns is the fastest's.
  std::vector<std::vector<WorkspaceChoice>> workspace_choices;
  graph::Rows<Touch> touches;  // by op, in order of graph.touched(op)
  // By storage.
  std::vector<std::int64_t> bytes;        // aligned
  graph::Rows<std::int32_t> uses;         // positions, ascending
  graph::Rows<graph::OpId> writers;       // in order of position
  std::vector<std::uint8_t> is_pinned;    // never moves (there from the start, not streamed)
  std::vector<std::uint8_t> is_streamed;  // starts and ends on the host
  // The last position before which its last version can still be rebuilt by running ops again;
  // -1: never.
  std::vector<std::int32_t> expiry;
  std::vector<double> rebuild_ns;   // its writers' cost
  std::vector<double> copy_out_ns;  // to the host
  std::vector<double> copy_in_ns;
  std::vector<Gap> gaps;                // those of at least one position, by storage then time
  std::vector<std::int32_t> first_gap;  // by storage, into gaps; one more at the end
  // The peak and curve of the order as it is, aligned, every storage freed after its last use.
  std::vector<std::int64_t> curve_bytes;  // by position
  std::int64_t peak_bytes = 0;
  std::int64_t stock_peak_bytes = 0;  // the same with the fastest workspaces
  std::int64_t pinned_bytes = 0;      // of pinned storages, at position 0
  double total_ns = 0;

  // max over ops of the distinct bytes touched, with all that is pinned across it.
  std::int64_t largest_op_bytes = 0;
  graph::OpId largest_op;

  std::int64_t last_use(graph::StorageId s) const {
    return uses[s.index()].empty() ? -1 : uses[s.index()].back();
  }
};

struct ProblemOptions {
  bool use_measured_costs = false;
  bool stream_optimizer_state = false;
  std::int64_t workspace_cap_bytes = -1;  // per op; -1: none
};

// Cost: O(ops + touches). Errors: as check_order; InvalidArgument naming the op where the workspace
// cap is below what it needs.
Problem make_problem(const graph::Graph& graph, const std::vector<graph::OpId>& order,
                     const DeviceModel& device, const OpCosts& costs,
                     const ProblemOptions& options);

}  // namespace plimsoll::plan
