// SPDX-License-Identifier: Apache-2.0
// Runs a plan in virtual time: one compute stream and a copy engine in each direction.
//
// Nouns: Timeline, StepTime.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/plan/plan.h"

namespace plimsoll::plan {

struct StepTime {
  double start_ns = 0;
  double end_ns = 0;
};

struct Timeline {
  std::vector<StepTime> steps;  // by step; a kFree has start == end
  double total_ns = 0;
  // The end of the highest bytes in use at any time: the size of the device memory the step needs.
  std::int64_t peak_bytes = 0;
  std::array<double, kStreams> busy_ns = {};
  double recompute_ns = 0;
  double stalled_ns = 0;  // the compute stream waiting for copies
};

// A step starts when its stream is free and all it waits for has ended, and takes its cost_ns; the
// host issues for free. The plan must be valid. Cost: O(steps + touches + waits). Pure,
// deterministic.
Timeline simulate_plan(const graph::Graph& graph, const Plan& plan);

// The timeline in the trace format of Chrome's and Perfetto's viewers, memory curve included.
std::string timeline_to_chrome_trace(const graph::Graph& graph, const Plan& plan,
                                     const Timeline& timeline);

}  // namespace plimsoll::plan
