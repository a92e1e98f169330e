// SPDX-License-Identifier: Apache-2.0
// How far the planner is from the exact one on a thousand random small steps; prints one JSON
// object. Used by residency.py.
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "../tests/plan/optimal_gap.h"

int main(int count, char** arguments) {
  const auto steps = static_cast<std::uint32_t>(count > 1 ? std::stoi(arguments[1]) : 1000);
  const auto gap = plimsoll::plan::testing::measure_gap(0, steps);
  const nlohmann::ordered_json result = {
      {"steps", steps},           {"cases", gap.cases},
      {"proved", gap.proved},     {"auto_least", gap.equal},
      {"mean_ratio", gap.mean},   {"worst_ratio", gap.worst},
      {"worst_at", gap.worst_at}, {"over_bound_ratio", gap.bound_mean}};
  std::cout << result.dump() << "\n";
  return 0;
}
