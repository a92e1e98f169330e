// SPDX-License-Identifier: Apache-2.0
// Simulated time of every policy at several budgets, for activations and their gradients alone, in
// one process, so that a policy searches once for all budgets. Prints one JSON object. Used by
// residency.py.
//
//     residency_cells NET BATCH stock|paper DEVICE POLICY,POLICY,... BUDGET...
//
// A budget is a part of stock's peak (0.33), a number of MiB (394) or a multiple of LB1 (1.15lb1).
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "plimsoll/plan/bit_masks.h"
#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/step_graph.h"

namespace {

using nlohmann::ordered_json;
namespace plan = plimsoll::plan;

plimsoll::graph::Graph make_graph(const std::string& net, int batch, const std::string& model) {
  plan::StepGraphOptions options;
  options.parameters = false;
  if (model == "paper") options.model = plan::StepModel::kPaper;
  const bool is_227 = model == "paper" || net.starts_with("alexnet");
  return plan::make_step_graph(plan::make_layer_net(net, batch, is_227 ? 227 : 224), options);
}

std::int64_t budget_of(const std::string& text, const plan::PlanBounds& bounds) {
  const double number = std::stod(text);
  if (text.ends_with("lb1"))
    return std::llround(std::floor(number * static_cast<double>(bounds.resident_bound_bytes)));
  if (number < 1)
    return std::llround(std::floor(number * static_cast<double>(bounds.stock_peak_bytes)));
  return std::llround(number * (1 << 20));
}

// `auto` also plans the graph with its masks as bits, as the command does.
class Cells {
 public:
  Cells(const plimsoll::graph::Graph& graph, const plan::DeviceModel& device)
      : graph_(graph),
        masks_(plan::pack_bit_masks(graph)),
        device_(device),
        bounds_(any().bounds()) {}

  const plan::PlanBounds& bounds() const { return bounds_; }

  void add(plan::Policy policy, const std::vector<std::int64_t>& budgets, ordered_json& rows) {
    plan::PlannerOptions options;
    options.policy = policy;
    plan::Planner plain(graph_, device_, options);
    std::optional<plan::Planner> packed;
    if (policy == plan::Policy::kAuto && !masks_.packed.empty())
      packed.emplace(masks_.graph, device_, options);
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      std::optional<plan::PlanReport> best = plain.try_plan(budgets[i]);
      if (packed) {
        auto other = packed->try_plan(budgets[i]);
        if (other && (!best || other->predicted_ns < best->predicted_ns)) best = std::move(other);
      }
      ordered_json& ratio = rows[i]["ratios"][std::string(plan::policy_name(policy))];
      if (best) ratio = best->predicted_ns / bounds_.stock_predicted_ns;
      if (policy != plan::Policy::kAuto) continue;
      double bound = plain.time_lower_bound_ns(budgets[i]);
      if (packed) bound = std::min(bound, packed->time_lower_bound_ns(budgets[i]));
      rows[i]["bound"] = bound / bounds_.stock_predicted_ns;
      if (!best) continue;
      rows[i]["arena_bytes"] = best->arena_bytes;
      rows[i]["found_by"] = plan::policy_name(best->found_by);
    }
  }

 private:
  plan::Planner any() const {
    plan::PlannerOptions options;
    options.policy = plan::Policy::kLiveness;
    return plan::Planner(graph_, device_, options);
  }
  const plimsoll::graph::Graph& graph_;
  plan::BitMasks masks_;
  plan::DeviceModel device_;
  plan::PlanBounds bounds_;
};

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() < 6) {
    std::cerr << "residency_cells NET BATCH stock|paper DEVICE POLICY,... BUDGET...\n";
    return 2;
  }
  const auto graph = make_graph(words[0], std::stoi(words[1]), words[2]);
  Cells cells(graph, plan::load_device_model(words[3]));
  std::vector<std::int64_t> budgets;
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 5; i < words.size(); ++i) {
    budgets.push_back(budget_of(words[i], cells.bounds()));
    rows.push_back({{"budget", words[i]}, {"budget_bytes", budgets.back()}});
  }
  std::istringstream policies(words[4]);
  for (std::string name; std::getline(policies, name, ',');)
    cells.add(plan::parse_policy(name, "policy"), budgets, rows);
  const ordered_json result = {{"ops", graph.op_count()},
                               {"stock_peak_bytes", cells.bounds().stock_peak_bytes},
                               {"lower_bound_bytes", cells.bounds().lower_bound_bytes},
                               {"resident_bound_bytes", cells.bounds().resident_bound_bytes},
                               {"rows", rows}};
  std::cout << result.dump() << "\n";
  return 0;
}
