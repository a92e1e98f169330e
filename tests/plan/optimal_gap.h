// SPDX-License-Identifier: Apache-2.0
// How far `auto` is from the exact planner on random small graphs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plimsoll/graph/builder.h"
#include "plimsoll/plan/residency.h"

#include "plan_cases.h"

namespace plimsoll::plan::testing {

// A random small net and its backward pass: each forward op reads one or two earlier results, each
// backward op reads the gradient, what its forward op read, and sometimes what it wrote; some
// forward ops write a second result, some may not run again.
inline graph::Graph random_step(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  graph::GraphBuilder builder;
  std::vector<graph::ValueId> made = {
      builder.add_tensor(10 + below(40), graph::ValueKind::kInput, below(2) == 0)};
  struct Forward {
    std::vector<graph::ValueId> reads;
    graph::ValueId output, second;
  };
  std::vector<Forward> ops;
  const int count = 3 + below(3);
  for (int i = 0; i < count; ++i) {
    Forward op;
    op.reads.push_back(made.back());
    if (made.size() > 1 && below(3) == 0) {
      const graph::ValueId other = made[std::size_t(below(unsigned(made.size()) - 1))];
      if (other != op.reads.front()) op.reads.push_back(other);
    }
    op.output = builder.add_tensor(10 + below(40));
    std::vector<graph::ValueId> results = {op.output};
    if (below(4) == 0) {
      op.second = builder.add_tensor(1 + below(20));
      results.push_back(op.second);
    }
    builder.add_op({.kind = "forward",
                    .operands = op.reads,
                    .results = results,
                    .flags = below(5) == 0 ? graph::kNoFlags : graph::kRecomputable,
                    .attributes = {{"flops", {20 + below(400)}}}});
    made.push_back(op.output);
    ops.push_back(op);
  }
  graph::ValueId gradient = made.back();
  for (std::size_t i = ops.size(); i-- > 0;) {
    std::vector<graph::ValueId> reads = {gradient};
    for (const graph::ValueId v : ops[i].reads)
      if (v != gradient) reads.push_back(v);
    if (ops[i].second.valid()) reads.push_back(ops[i].second);
    if (below(2) == 0 && ops[i].output != gradient) reads.push_back(ops[i].output);
    gradient = builder.add_tensor(10 + below(40), graph::ValueKind::kGradient, i == 0);
    builder.add_op({.kind = "backward",
                    .operands = reads,
                    .results = {gradient},
                    .phase = graph::Phase::kBackward,
                    .attributes = {{"flops", {40 + below(800)}}}});
  }
  return builder.build();
}

struct GapSum {
  int cases = 0;    // with a budget below stock's peak that can be kept
  int proved = 0;   // in which the exact search ended by itself
  int equal = 0;    // in which `auto` took the least time
  double mean = 0;  // of auto's time / the exact planner's
  double worst = 1;
  std::string worst_at;
  double bound_mean = 0;  // of auto's time / the exact bound
};

// Copies of nothing, slow ones and fast ones, by turns.
inline double copy_speed(std::uint32_t seed) {
  constexpr double kSpeeds[] = {0, 0.2, 1};
  return kSpeeds[seed % 3];
}

// Random steps `first` to `last`, each at three budgets between the minimum and stock's peak. Every
// plan is validated on its way.
inline GapSum measure_gap(std::uint32_t first, std::uint32_t last) {
  GapSum sum;
  for (std::uint32_t seed = first; seed < last; ++seed) {
    const graph::Graph graph = random_step(seed);
    PlannerOptions options;
    Planner quick(graph, round_device(copy_speed(seed)), options);
    options.policy = Policy::kOptimal;
    Planner exact(graph, round_device(copy_speed(seed)), options);
    const std::int64_t least = quick.minimum_budget_bytes();
    const std::int64_t most = quick.bounds().stock_peak_bytes;
    for (int i = 0; i < 3 && least < most; ++i) {
      const std::int64_t budget = least + (most - least) * i / 3;
      const double ours = quick.plan(budget).predicted_ns;
      const PlanReport best = exact.plan(budget);
      const double ratio = ours / best.predicted_ns;
      ++sum.cases;
      sum.proved += best.is_proved ? 1 : 0;
      sum.equal += ratio <= 1 + 1e-9 ? 1 : 0;
      sum.mean += ratio;
      sum.bound_mean += ours / std::min(best.least_ns, best.predicted_ns);
      if (ratio <= sum.worst) continue;
      sum.worst = ratio;
      sum.worst_at = "seed " + std::to_string(seed) + ", budget " + std::to_string(budget);
    }
  }
  sum.mean /= std::max(1, sum.cases);
  sum.bound_mean /= std::max(1, sum.cases);
  return sum;
}

}  // namespace plimsoll::plan::testing
