// SPDX-License-Identifier: Apache-2.0
// A plan under construction: the steps of plan.h in flat arrays, without addresses and waits, so
// that thousands can be made and thrown away.
//
// Nouns: Draft, DraftStep.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plimsoll/plan/plan.h"

#include "problem.h"

namespace plimsoll::plan {

// As Step; `first_touched` points into Draft::touched, one entry for each of graph.touched(op).
struct DraftStep {
  StepKind kind = StepKind::kRun;
  Tier tier = Tier::kHost;
  graph::OpId op;
  InstanceId instance;
  InstanceId taken_over;
  std::uint32_t first_touched = 0;
  std::uint32_t touched_count = 0;
  std::int64_t workspace_bytes = 0;
  double cost_ns = 0;

  Stream stream() const {
    if (kind == StepKind::kOffload) return Stream::kCopyOut;
    return kind == StepKind::kPrefetch ? Stream::kCopyIn : Stream::kCompute;
  }
};

struct Draft {
  std::vector<graph::StorageId> instances;
  std::vector<DraftStep> steps;
  std::vector<InstanceId> touched;
  std::vector<InstanceId> initial;
  std::vector<graph::StorageId> starts_on_host;
  std::int64_t peak_bytes = 0;  // most live bytes, aligned

  std::span<const InstanceId> touched_of(const DraftStep& step) const {
    return {touched.data() + step.first_touched, step.touched_count};
  }
};

// The plan of a draft, addresses and waits still to be made. Cost: O(steps + touches).
Plan make_plan(const Draft& draft, std::int64_t alignment_bytes);

// Takes out copies to the host that nothing fetches, because in the end there was room.
void drop_useless_copies(const Problem& problem, Draft& draft);

// Moves every prefetch as early as the budget allows and its copy engine needs. Cost: O(steps log
// steps).
void hoist_prefetches(const Problem& problem, Draft& draft, std::int64_t budget_bytes);

// The simulated time before addresses are known. Bytes that a kFree hands on are waited for by
// whoever needs them: in a pool of `capacity_bytes` an op takes those that are ready, a fetch those
// that have been ready longest. Cost: O(steps + touches).
// Where `stalled_ns` is given, it becomes, by storage, how long the ops waited for its copies.
double estimate_ns(const Problem& problem, const Draft& draft, std::int64_t capacity_bytes,
                   std::vector<double>* stalled_ns = nullptr);

// The same with all the room one could want: no layout of this draft is faster.
double least_ns(const Problem& problem, const Draft& draft);

}  // namespace plimsoll::plan
