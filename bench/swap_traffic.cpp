// SPDX-License-Identifier: Apache-2.0
// Traffic and time of the swap planner beside the certified lower bound, one JSON line a case.
//
//   bench_swap_traffic                       generated steps of the watched nets, 60, 33 and 20 %
//   bench_swap_traffic FILE... [--percent P] recorded sequences
//   (plimsoll/plan/access_sequence_json.h)
#include <chrono>
#include <cstdio>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/plan/swap_bound.h"
#include "plimsoll/plan/swap_plan.h"

#include "step_nets.h"

namespace {

using plimsoll::plan::AccessSequence;

template <typename Work>
double milliseconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void report(const std::string& name, const AccessSequence& sequence, int percent) {
  const std::int64_t peak = plimsoll::plan::testing::peak_bytes(sequence);
  const std::int64_t budget = peak / 100 * percent;
  plimsoll::plan::SwapPlan plan;
  const double plan_ms = milliseconds([&] { plan = plan_swaps(sequence, budget); });
  validate_swap_plan(sequence, budget, plan);
  const plimsoll::plan::SwapPlan greedy = plan_swaps(sequence, budget, {.effort = 0});
  plimsoll::plan::SwapBound bound;
  const double bound_ms = milliseconds([&] { bound = swap_lower_bound(sequence, budget); });
  const auto ratio = [&](const plimsoll::plan::SwapPlan& p) {
    return bound.bytes == 0
               ? 1.0
               : static_cast<double>(p.moved_bytes()) / static_cast<double>(bound.bytes);
  };
  fmt::print(
      "{:28} ops {:6} acc {:6} peak {:5} MiB {:3}% feas {} moved {:6.1f} MiB ratio {:.4f} greedy "
      "{:.4f} plan {:.1f} ms bound {:.1f} ms tight {}\n",
      name, sequence.op_count(), sequence.access_count(), peak >> 20, percent, plan.is_feasible,
      static_cast<double>(plan.moved_bytes()) / 1048576.0, ratio(plan), ratio(greedy), plan_ms,
      bound_ms, bound.is_tight);
  std::fflush(stdout);
}

}  // namespace

int main() {
  using namespace plimsoll::plan::testing;
  for (const auto& [name, sequence] : watched_steps())
    for (const int percent : {60, 45, 33, 20}) report(name, sequence, percent);
  const AccessSequence deep = resnet_step({6, 32, 40, 6}, 16, 32);
  for (const int percent : {50, 20, 10, 5}) report("deep", deep, percent);
  const AccessSequence deeper = resnet_step({6, 32, 595, 6}, 4, 32);
  for (const int percent : {50, 20}) report("deeper", deeper, percent);
}
