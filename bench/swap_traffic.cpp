// SPDX-License-Identifier: Apache-2.0
// Traffic and time of the swap planner beside the certified lower bound; one JSON object a line.
//
//   bench_swap_traffic [--deep] PERCENT...       generated steps of the watched nets; --deep adds
//                                                ResNets of 86 and 641 blocks
//   bench_swap_traffic --file FILE PERCENT...    a recorded step (access_sequence_json.h)
//
// Budgets are in percent of the most that lives at once. Every plan is validated before it counts.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/access_sequence_json.h"
#include "plimsoll/plan/swap_bound.h"
#include "plimsoll/plan/swap_plan.h"

#include "step_nets.h"

namespace {

using plimsoll::plan::AccessSequence;
using plimsoll::plan::SwapBound;
using plimsoll::plan::SwapPlan;
using plimsoll::plan::testing::NetStep;

template <typename Work>
double milliseconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto spent = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::milli>(spent).count();
}

void report(const NetStep& net, int percent) {
  const AccessSequence& sequence = net.sequence;
  const std::int64_t peak = plimsoll::plan::testing::peak_bytes(sequence);
  const std::int64_t budget = peak / 100 * percent;
  SwapPlan plan;
  double plan_ms = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double once = milliseconds([&] { plan = plan_swaps(sequence, budget); });
    plan_ms = repeat == 0 ? once : std::min(plan_ms, once);
  }
  plimsoll::plan::validate_swap_plan(sequence, budget, plan);
  const SwapPlan greedy = plan_swaps(sequence, budget, {.effort = 0});
  SwapBound bound;
  const double bound_ms = milliseconds([&] { bound = swap_lower_bound(sequence, budget); });
  const nlohmann::ordered_json line = {{"net", net.name},
                                       {"operators", sequence.op_count()},
                                       {"accesses", sequence.access_count()},
                                       {"peak_bytes", peak},
                                       {"persistent_bytes", sequence.persistent_bytes()},
                                       {"percent", percent},
                                       {"budget_bytes", budget},
                                       {"feasible", plan.is_feasible},
                                       {"minimum_budget_bytes", plan.minimum_budget_bytes},
                                       {"out_bytes", plan.out_bytes},
                                       {"in_bytes", plan.in_bytes},
                                       {"greedy_moved_bytes", greedy.moved_bytes()},
                                       {"moved_lower_bound_bytes", bound.bytes},
                                       {"bound_is_tight", bound.is_tight},
                                       {"plan_ms", plan_ms},
                                       {"bound_ms", bound_ms}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

NetStep read_step(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw plimsoll::InvalidFile(path, "", "cannot be opened");
  std::ostringstream text;
  text << file.rdbuf();
  return {path, plimsoll::plan::access_sequence_from_json(text.str(), path)};
}

int run(const std::vector<std::string>& arguments) {
  std::vector<NetStep> nets;
  std::vector<int> percents;
  bool is_deep = false;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (arguments[k] == "--deep")
      is_deep = true;
    else if (arguments[k] == "--file" && k + 1 < arguments.size())
      nets.push_back(read_step(arguments[++k]));
    else
      percents.push_back(std::stoi(arguments[k]));
  }
  if (nets.empty()) nets = plimsoll::plan::testing::watched_steps();
  if (is_deep) {
    using plimsoll::plan::testing::resnet_step;
    nets.push_back({"resnet:6-32-40-6@32 b16", resnet_step({6, 32, 40, 6}, 16, 32)});
    nets.push_back({"resnet:6-32-595-6@32 b4", resnet_step({6, 32, 595, 6}, 4, 32)});
  }
  for (const NetStep& net : nets)
    for (const int percent : percents) report(net, percent);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_swap_traffic: {}\n", error.what());
    return 2;
  }
}
