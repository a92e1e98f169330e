// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/residency.h"

#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/step_graph.h"
#include "plimsoll/plan/validate.h"

#include "../graph/random_graph.h"
#include "plan_cases.h"

namespace plimsoll::plan {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::OpId;
using graph::StorageId;
using graph::ValueKind;
using testing::equal_blocks;
using testing::round_device;

Graph resnet_step(std::int64_t batch, bool parameters) {
  StepGraphOptions options;
  options.parameters = parameters;
  return make_step_graph(make_layer_net("resnet50", batch, 224), options);
}

// The simulated device, the validator, the layout and the addresses themselves, added up here.
void expect_one_peak(const Graph& graph, const PlanReport& report) {
  const Plan& plan = report.plan;
  std::int64_t top = 0;
  const auto use = [&](std::int64_t address, std::int64_t bytes) {
    const std::int64_t unit = plan.alignment_bytes;
    if (bytes > 0) top = std::max(top, address + (bytes + unit - 1) / unit * unit);
  };
  for (const Instance& instance : plan.instances)
    use(instance.address, graph.size_bytes(instance.storage));
  for (const Step& step : plan.steps) use(step.workspace_address, step.workspace_bytes);
  const PlanVerdict verdict = validate_plan(graph, plan, report.budget_bytes);
  EXPECT_TRUE(verdict.valid()) << verdict.message;
  EXPECT_EQ(report.timeline.peak_bytes, top);
  EXPECT_EQ(verdict.peak_bytes, top);
  EXPECT_EQ(plan.arena_bytes, top);
  EXPECT_EQ(report.peak_bytes, top);
  EXPECT_EQ(report.arena_bytes, top);
  EXPECT_LE(report.live_bytes, top);
}

TEST(Planner, EveryPolicyGivesValidPlansOnRandomGraphsAtEveryBudget) {
  for (std::uint32_t seed = 0; seed < 80; ++seed) {
    graph::testing::RandomGraphOptions shape;
    shape.ops = 4 + static_cast<int>(seed % 14);
    shape.max_size = 40;
    const Graph graph = graph::testing::random_graph(seed, shape);
    for (const Policy policy : all_policies()) {
      if (policy == Policy::kOptimal && shape.ops > 7) continue;  // see optimal_test.cpp
      PlannerOptions options;
      options.policy = policy;
      options.evaluations = 8;
      Planner planner(graph, round_device(), options);
      const std::int64_t least = planner.minimum_budget_bytes();
      const std::int64_t most = std::max(least, planner.bounds().stock_peak_bytes) + 64;
      double last = std::numeric_limits<double>::infinity();
      for (int i = 0; i <= 4; ++i) {
        const std::int64_t budget = least + (most - least) * i / 4;
        const PlanReport report = planner.plan(budget);  // validates what it returns
        ASSERT_LE(report.arena_bytes, budget) << "seed " << seed << " " << policy_name(policy);
        expect_one_peak(graph, report);
        ASSERT_LE(report.predicted_ns, last) << "seed " << seed << " " << policy_name(policy);
        last = report.predicted_ns;
      }
      ASSERT_LE(planner.bounds().lower_bound_bytes, least)
          << "seed " << seed << " " << policy_name(policy);
    }
  }
}

TEST(Planner, PeakIsTheArenaForEveryPolicyOnRealSteps) {
  StepGraphOptions shape;
  shape.workspaces = true;
  for (const char* net : {"resnet:stages=2-2-2-2,image=64", "alexnet", "vgg16:image=64"}) {
    const Graph graph = make_step_graph(make_layer_net(net, 4, 227), shape);
    for (const Policy policy : all_policies()) {
      if (policy == Policy::kOptimal) continue;  // see optimal_test.cpp
      SCOPED_TRACE(std::string(net) + " " + std::string(policy_name(policy)));
      PlannerOptions options;
      options.policy = policy;
      options.evaluations = 4;
      Planner planner(graph, load_device_model("a100-80g"), options);
      const std::int64_t least = planner.minimum_budget_bytes();
      for (const std::int64_t budget : {least, (least + planner.bounds().stock_peak_bytes) / 2})
        expect_one_peak(graph, planner.plan(std::max(least, budget)));
    }
  }
}

// Whatever another policy answers to a budget is among the plans of `auto`.
void expect_no_worse(const Graph& graph, const DeviceModel& device,
                     const std::vector<Policy>& rivals, int budgets) {
  PlannerOptions options;
  Planner planner(graph, device, options);
  for (const Policy policy : rivals) {
    SCOPED_TRACE(policy_name(policy));
    options.policy = policy;
    Planner rival(graph, device, options);
    const std::int64_t least = rival.minimum_budget_bytes();
    ASSERT_LE(planner.minimum_budget_bytes(), least);
    const std::int64_t most = std::max(least, rival.bounds().stock_peak_bytes);
    for (int i = 0; i <= budgets; ++i) {
      const std::int64_t budget = least + (most - least) * i / budgets;
      EXPECT_LE(planner.plan(budget).predicted_ns, rival.plan(budget).predicted_ns)
          << "budget " << budget;
    }
  }
}

std::vector<Policy> rivals_of_auto() {
  std::vector<Policy> rivals = all_policies();
  std::erase(rivals, Policy::kAuto);
  std::erase(rivals, Policy::kOptimal);
  return rivals;
}

TEST(Planner, AutoIsNoWorseThanAnyPolicyOnRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    graph::testing::RandomGraphOptions shape;
    shape.ops = 5 + static_cast<int>(seed % 20);
    shape.max_size = 40;
    const Graph graph = graph::testing::random_graph(seed, shape);
    expect_no_worse(graph, round_device(seed % 3 == 0 ? 0 : 0.5), rivals_of_auto(), 3);
  }
}

// Chen's and DTR's do not fit everywhere; where they do not, there is nothing to beat.
TEST(Planner, AutoIsNoWorseThanAnyPublishedPolicyOnRealNets) {
  StepGraphOptions shape;
  shape.parameters = false;
  for (const auto& [net, device] : {std::pair{"resnet50", "h200"}, {"vgg16", "a100-80g"}}) {
    const Graph graph = make_step_graph(make_layer_net(net, 16, 224), shape);
    const DeviceModel model = load_device_model(device);
    Planner planner(graph, model, {});
    for (const Policy policy : {Policy::kSuperNeurons, Policy::kBaselineChen, Policy::kBaselineDtr,
                                Policy::kBaselineCapuchin, Policy::kBaselinePofo}) {
      PlannerOptions options;
      options.policy = policy;
      Planner rival(graph, model, options);
      for (const double part : {0.6, 0.8}) {
        const auto budget = static_cast<std::int64_t>(
            part * static_cast<double>(planner.bounds().stock_peak_bytes));
        EXPECT_LE(planner.plan(budget).predicted_ns, rival.plan(budget).predicted_ns)
            << net << " at " << part << ", " << policy_name(policy);
      }
    }
  }
}

// Where steps are slow; and it is left out without harm where a larger budget needs it not.
TEST(Planner, TheLongerSearchIsNoSlowerAndKeepsLargerBudgetsNoSlower) {
  const Graph graph = make_step_graph(make_layer_net("resnet:stages=1-1-1-1,image=64", 16, 64),
                                      {.parameters = false});
  PlannerOptions options;
  Planner longer(graph, load_device_model("h200"), options);
  options.thorough = false;
  Planner quick(graph, load_device_model("h200"), options);
  const std::int64_t least = longer.minimum_budget_bytes();
  EXPECT_EQ(quick.minimum_budget_bytes(), least);
  const std::int64_t most = longer.bounds().stock_peak_bytes;
  int faster = 0;
  double last = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 24; ++i) {
    const std::int64_t budget = least + (most - least) * i / 24;
    const PlanReport report = longer.plan(budget);
    expect_one_peak(graph, report);
    EXPECT_LE(report.predicted_ns, quick.plan(budget).predicted_ns);
    EXPECT_LE(report.predicted_ns, last);
    last = report.predicted_ns;
    faster += report.predicted_ns < quick.plan(budget).predicted_ns ? 1 : 0;
  }
  EXPECT_GT(faster, 0);
}

TEST(Planner, NothingMovesWhereNothingIsNeeded) {
  const Graph graph = equal_blocks(16, 1000);
  Planner planner(graph, round_device(), {});
  const PlanReport report = planner.plan(1 << 30);
  EXPECT_EQ(report.offloaded_bytes, 0);
  EXPECT_EQ(report.recomputed_ops, 0);
  EXPECT_DOUBLE_EQ(report.predicted_ns, planner.bounds().stock_predicted_ns);
}

// A real budget was seen to be not monotone: the peak went up as the budget went down.
TEST(Planner, PeakIsKeptAndCostFallsAsTheBudgetGrowsOverEqualBlocks) {
  for (const int blocks : {16, 24, 32}) {
    const Graph graph = equal_blocks(blocks, 4096);
    Planner planner(graph, round_device(4), {});
    const std::int64_t stock = planner.bounds().stock_peak_bytes;
    double last_ns = std::numeric_limits<double>::infinity();
    std::int64_t last_peak = 0;
    for (int percent = 5; percent <= 100; percent += 5) {
      const std::int64_t budget = stock * percent / 100;
      if (budget < planner.minimum_budget_bytes()) {
        EXPECT_THROW(planner.plan(budget), InfeasibleBudget);
        continue;
      }
      const PlanReport report = planner.plan(budget);
      EXPECT_LE(report.arena_bytes, budget);
      EXPECT_LE(report.predicted_ns, last_ns) << blocks << " blocks, " << percent << " %";
      EXPECT_GE(report.peak_bytes, last_peak) << blocks << " blocks, " << percent << " %";
      last_ns = report.predicted_ns;
      last_peak = report.peak_bytes;
    }
    EXPECT_DOUBLE_EQ(last_ns, planner.bounds().stock_predicted_ns);
    EXPECT_LE(planner.minimum_budget_bytes(), 5 * 4096);
  }
}

TEST(Planner, ABudgetBelowTheMinimumNamesMinimumOpAndBytes) {
  const Graph graph = equal_blocks(16, 1000);
  Planner planner(graph, round_device(), {});
  const std::int64_t least = planner.minimum_budget_bytes();
  // Activation, gradient and its successor, beside the input that the last backward op reads.
  EXPECT_EQ(planner.bounds().lower_bound_bytes, 4000);
  EXPECT_GE(least, 4000);
  try {
    planner.plan(least - 1);
    FAIL() << "a budget below the minimum was accepted";
  } catch (const InfeasibleBudget& error) {
    EXPECT_EQ(error.minimum_budget_bytes(), least);
    EXPECT_THAT(error.pinned_by(), ::testing::HasSubstr("backward"));
    EXPECT_THAT(error.pinned_by(), ::testing::HasSubstr("4000"));
  }
  EXPECT_EQ(planner.plan(least).arena_bytes, least);
}

// The order is solved again for what residency has made of the graph: both the least peak and the
// order that comes of it win somewhere, and no order ever makes the smallest budget larger.
TEST(Planner, OrdersAreSolvedAgainWhereResidencyChangesWhatPinsThePeak) {
  int least_peak = 0;
  int resolved = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    graph::testing::RandomGraphOptions shape;
    shape.ops = 14;
    shape.max_size = 40;
    const Graph graph = graph::testing::random_graph(seed, shape);
    PlannerOptions options;
    options.evaluations = 4;
    Planner any(graph, round_device(), options);
    options.reorder = false;
    Planner fixed(graph, round_device(), options);
    ASSERT_LE(any.minimum_budget_bytes(), fixed.minimum_budget_bytes()) << "seed " << seed;
    const std::string name = any.plan(any.minimum_budget_bytes()).order_name;
    least_peak += name == "least peak" ? 1 : 0;
    resolved += name == "re-solved" ? 1 : 0;
  }
  EXPECT_GT(least_peak, 0);
  EXPECT_GT(resolved, 0);
}

TEST(Planner, KeepsWhatMayNotRunAgainAndCannotMove) {
  GraphBuilder builder;  // a random op's result, a device without copies: nothing can be done
  const auto x = builder.add_tensor(100, ValueKind::kInput, true);
  const auto a = builder.add_tensor(100);
  const auto b = builder.add_tensor(100);
  const auto c = builder.add_tensor(10);
  const auto d = builder.add_tensor(10, ValueKind::kOutput, true);
  builder.add_op({.kind = "a", .operands = {x}, .results = {a}, .flags = graph::kRandom});
  builder.add_op({.kind = "b", .operands = {x}, .results = {b}, .flags = graph::kRecomputable});
  builder.add_op({.kind = "c", .operands = {b}, .results = {c}, .flags = graph::kRecomputable});
  builder.add_op({.kind = "d", .operands = {a, c}, .results = {d}, .flags = graph::kRecomputable});
  const Graph graph = builder.build();
  DeviceModel device = round_device();
  device.copy_in_bytes_per_second = device.copy_out_bytes_per_second = 0;
  PlannerOptions fixed;
  fixed.reorder = false;
  Planner stuck(graph, device, fixed);
  EXPECT_EQ(stuck.minimum_budget_bytes(), 310);
  // In another order `a` is made when b has gone.
  Planner reordering(graph, device, {});
  EXPECT_EQ(reordering.minimum_budget_bytes(), 220);
  EXPECT_EQ(reordering.plan(220).order_name, "least peak");
  Planner moving(graph, round_device(), {});
  EXPECT_LT(moving.minimum_budget_bytes(), 310);
}

// Adam's step was seen to hold a full copy of the parameters.
TEST(Planner, TheOptimizerStepHoldsOneParametersWorth) {
  constexpr int kLayers = 8;
  constexpr std::int64_t kBytes = 512 * 512 * 4;
  GraphBuilder builder;
  std::vector<graph::ValueId> gradients, parameters, moments;
  for (int i = 0; i < kLayers; ++i) {
    parameters.push_back(builder.add_tensor(kBytes, ValueKind::kParameter, true));
    gradients.push_back(builder.add_tensor(kBytes, ValueKind::kGradient, true));
    moments.push_back(builder.add_tensor(kBytes, ValueKind::kOptimizerState, true));
  }
  // As a list operator would do it: all updates are made before the first is applied.
  std::vector<graph::ValueId> updates;
  const auto phase = graph::Phase::kOptimizer;
  for (int i = 0; i < kLayers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    updates.push_back(builder.add_tensor(kBytes));
    builder.add_op({.kind = "denominator",
                    .operands = {moments[at], gradients[at]},
                    .results = {updates.back()},
                    .phase = phase});
  }
  for (int i = 0; i < kLayers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto next = builder.add_value({.storage = builder.storage(parameters[at]),
                                         .kind = ValueKind::kParameter,
                                         .overwrites = parameters[at]});
    builder.add_op({.kind = "apply",
                    .operands = {parameters[at], updates[at]},
                    .results = {next},
                    .phase = phase});
  }
  const Graph graph = builder.build();
  Planner planner(graph, round_device(), {});
  const PlanBounds& bounds = planner.bounds();
  EXPECT_EQ(bounds.stock_peak_bytes - bounds.persistent_bytes, kLayers * kBytes);
  const PlanReport report = planner.plan(bounds.persistent_bytes + kBytes);
  EXPECT_EQ(report.peak_bytes - bounds.persistent_bytes, kBytes);
  EXPECT_EQ(report.live_bytes, report.peak_bytes);
  EXPECT_EQ(report.order_name, "early updates");
  EXPECT_DOUBLE_EQ(report.predicted_ns, bounds.stock_predicted_ns);
}

TEST(Planner, StreamedOptimizerStateIsOnTheDeviceOnlyAroundItsUpdate) {
  StepGraphOptions shape;
  const LayerNet net = make_layer_net("resnet:stages=2-2-2-2,image=64", 1);
  const Graph graph = make_step_graph(net, shape);
  PlannerOptions options;
  options.evaluations = 4;
  Planner resident(graph, load_device_model("a100-80g"), options);
  options.stream_optimizer_state = true;
  Planner streamed(graph, load_device_model("a100-80g"), options);
  std::int64_t state = 0;
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i) state += net.parameter_bytes(i);
  EXPECT_LT(streamed.minimum_budget_bytes(), resident.minimum_budget_bytes() - state * 8 / 10);
  const PlanReport report = streamed.plan(streamed.minimum_budget_bytes());
  EXPECT_GE(report.offloaded_bytes, state);
  EXPECT_GE(report.prefetched_bytes, state);
}

// cuDNN was seen to take any workspace it likes.
TEST(Planner, WorkspaceIsCappedAndNeverTakesTheStepOverItsBudget) {
  StepGraphOptions shape;
  shape.workspaces = true;
  const Graph graph = make_step_graph(make_layer_net("vgg16:image=64", 2), shape);
  const DeviceModel device = load_device_model("a100-80g");
  PlannerOptions options;
  options.evaluations = 4;
  Planner free_planner(graph, device, options);
  const PlanReport free_report = free_planner.plan(device.memory_bytes);
  const std::int64_t cap = free_report.workspace_bytes / 4;
  ASSERT_GT(cap, 0);
  PlannerOptions capped = options;
  capped.workspace_cap_bytes = cap;
  Planner planner(graph, device, capped);
  const PlanReport report = planner.plan(device.memory_bytes);
  EXPECT_LE(report.workspace_bytes, cap);
  EXPECT_GT(report.workspace_bytes, 0);
  EXPECT_GT(report.predicted_ns, free_report.predicted_ns);
}

TEST(Planner, AnOpTakesTheFastestWorkspaceThatTheBudgetLeaves) {
  GraphBuilder builder;
  const auto x = builder.add_tensor(10, ValueKind::kInput, true);
  const auto y = builder.add_tensor(10, ValueKind::kOutput, true);
  builder.add_op({.kind = "conv",
                  .operands = {x},
                  .results = {y},
                  .attributes = {{"workspace_choices", {0, 1300, 40, 1100, 100, 1000}}}});
  const Graph graph = builder.build();
  Planner planner(graph, round_device(), {});
  EXPECT_EQ(planner.minimum_budget_bytes(), 20);
  EXPECT_EQ(planner.plan(120).workspace_bytes, 100);
  EXPECT_EQ(planner.plan(119).workspace_bytes, 40);
  EXPECT_EQ(planner.plan(59).workspace_bytes, 0);
}

TEST(Planner, AWorkspaceCapBelowTheNeedNamesTheOp) {
  GraphBuilder builder;
  const auto a = builder.add_tensor(8, ValueKind::kOutput, true);
  builder.add_op({.kind = "conv", .name = "stem", .results = {a}, .workspace_bytes = 100});
  const Graph graph = builder.build();
  PlannerOptions options;
  options.workspace_cap_bytes = 99;
  try {
    Planner planner(graph, round_device(), options);
    FAIL() << "a cap below the need was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("stem"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("100"));
  }
}

TEST(Planner, PlansTheSameTwice) {
  const Graph graph = make_step_graph(make_layer_net("resnet:stages=1-2-1,image=64", 4), {});
  const DeviceModel device = load_device_model("h200");
  std::string first;
  for (int i = 0; i < 2; ++i) {
    Planner planner(graph, device, {});
    const std::int64_t budget =
        planner.bounds().persistent_bytes +
        (planner.bounds().stock_peak_bytes - planner.bounds().persistent_bytes) / 3;
    const std::string text = plan_to_json(graph, planner.plan(budget).plan);
    if (i == 0) first = text;
    EXPECT_EQ(text, first);
  }
}

TEST(Planner, TimeIsNeverBelowItsLowerBound) {
  StepGraphOptions shape;
  shape.parameters = false;
  const Graph graph = make_step_graph(make_layer_net("resnet:stages=2-2-2", 8), shape);
  for (const Policy policy : {Policy::kAuto, Policy::kRecomputeOnly, Policy::kOffloadOnly}) {
    PlannerOptions options;
    options.policy = policy;
    Planner planner(graph, load_device_model("a100-80g"), options);
    for (const double part : {0.9, 0.6, 0.33}) {
      const auto budget =
          static_cast<std::int64_t>(part * static_cast<double>(planner.bounds().stock_peak_bytes));
      if (budget < planner.minimum_budget_bytes()) continue;
      EXPECT_GE(planner.plan(budget).predicted_ns * 1.0000001, planner.time_lower_bound_ns(budget))
          << policy_name(policy) << " at " << part;
    }
  }
}

TEST(Planner, ResNet50MeetsTheTimesPromisedForItsBudgets) {
  const Graph graph = resnet_step(32, false);
  Planner planner(graph, load_device_model("a100-80g"), {});
  const auto ratio = [&](double part) {
    const auto budget =
        static_cast<std::int64_t>(part * static_cast<double>(planner.bounds().stock_peak_bytes));
    return planner.plan(budget).predicted_ns / planner.bounds().stock_predicted_ns;
  };
  EXPECT_LE(ratio(0.60), 1.06);
  EXPECT_LE(ratio(0.33), 1.12);
}

TEST(DeviceModel, EveryNamedDeviceLoadsAndCanCopy) {
  for (const std::string& name : device_model_names()) {
    const DeviceModel device = load_device_model(name);
    EXPECT_EQ(device.name, name);
    EXPECT_TRUE(device.can_copy()) << name;
  }
}

TEST(DeviceModel, RefusesMissingUnknownAndAbsurdFiguresByKey) {
  const auto position = [](const std::string& text) {
    try {
      parse_device_model(text, "d.json");
    } catch (const InvalidFile& error) {
      return error.position();
    }
    return std::string("accepted");
  };
  const std::string head =
      R"({"name":"x","memory_bytes":1e9,"flops_per_second":1e12,"bytes_per_second":1e11,)"
      R"("launch_ns":0,"copy_out_bytes_per_second":1e9,"copy_latency_ns":0,"host_bytes":0)";
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":1e9})"), "accepted");
  EXPECT_EQ(position(head + "}"), "copy_in_bytes_per_second");
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":-1})"), "copy_in_bytes_per_second");
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":"fast"})"), "copy_in_bytes_per_second");
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":1e9,"speed":1})"), "speed");
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":1e9,"alignment_bytes":3})"),
            "alignment_bytes");
  const std::string copies = R"(,"copy_in_bytes_per_second":1e9)";
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":1e-9})"), "copy_in_bytes_per_second");
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":1e300})"), "copy_in_bytes_per_second");
  EXPECT_EQ(position(head + R"(,"copy_in_bytes_per_second":null})"), "copy_in_bytes_per_second");
  EXPECT_EQ(position(head + copies + R"(,"bandwidth_efficiency":0})"), "bandwidth_efficiency");
  EXPECT_EQ(position(head + copies + R"(,"file_write_bytes_per_second":1e9})"),
            "file_read_bytes_per_second");
  EXPECT_EQ(position("[]"), "");
  EXPECT_EQ(position("{"), "");
  EXPECT_THROW(load_device_model("no-such-device"), InvalidArgument);
}

}  // namespace
}  // namespace plimsoll::plan
