// SPDX-License-Identifier: Apache-2.0
#include "plan_command.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/size.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/plan/bit_masks.h"
#include "plimsoll/plan/residency.h"
#include "plimsoll/plan/step_graph.h"

namespace plimsoll::cli {
namespace {

constexpr double kNsPerSecond = 1e9;

class PlanCommand final : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string summary() const override {
    return "Plan what stays, what moves and what runs again, for a device that need not be here";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll plan resnet50 --batch 32 --budget 33%a --device a100-80g",
            "plimsoll plan vgg16 --batch 8 --budget min --policy recompute-only --json -"};
  }

  void declare(CLI::App& app) override {
    std::string devices, policies;
    for (const std::string& device : plan::device_model_names())
      devices += (devices.empty() ? "" : ", ") + device;
    for (const plan::Policy policy : plan::all_policies())
      policies += (policies.empty() ? "" : ", ") + std::string(plan::policy_name(policy));
    app.add_option("model", model_,
                   fmt::format("A recorded step (STEP.json or .txt), or one of {}",
                               plan::layer_net_names()))
        ->required()
        ->type_name("MODEL");
    app.add_option("--budget", budget_, "Bytes of device memory: SIZE, 33%, 33%a, min or none")
        ->capture_default_str();
    app.add_option("--policy", policy_, policies)->capture_default_str();
    app.add_option("--device", device_, devices + ", or FILE.json")->capture_default_str();
    app.add_option("--batch", batch_, "Samples in one step (layer nets)")->capture_default_str();
    app.add_option("--step-model", step_model_,
                   "How a layer net becomes a step: stock (as LibTorch runs it) or paper "
                   "(SuperNeurons' layer model)")
        ->capture_default_str();
    app.add_flag("--activations-only", activations_only_,
                 "Count activations and their gradients alone (layer nets)");
    app.add_flag("--workspaces", workspaces_, "Give convolutions workspaces to choose from");
    app.add_option("--workspace-cap", workspace_cap_, "Most workspace of one operator")
        ->type_name("SIZE");
    app.add_flag("--stream-optimizer-state", stream_,
                 "Optimizer state lives on the host, fetched for each update");
    app.add_flag("--byte-masks", byte_masks_, "Never keep two-valued masks as bits");
    app.add_flag("--quick", quick_,
                 "Never search longer, not even where the step takes more than 1.2 times as long");
    app.add_flag("--measured", measured_, "The file's costs were measured on this device");
    app.add_option("--out", out_, "Write the plan as JSON")->type_name("FILE.json");
    app.add_option("--timeline", timeline_, "Write the timeline for Chrome's trace viewer")
        ->type_name("FILE.json");
  }

  ExitCode run(Console& console, Json& result) override {
    if (!out_.empty()) check_writable(out_, "--out");
    if (!timeline_.empty()) check_writable(timeline_, "--timeline");
    const graph::Graph graph = load();
    const plan::DeviceModel device = plan::load_device_model(device_);
    plan::PlannerOptions options;
    options.policy = plan::parse_policy(policy_, "--policy");
    options.use_measured_costs = measured_;
    options.thorough = !quick_;
    options.stream_optimizer_state = stream_;
    if (!workspace_cap_.empty())
      options.workspace_cap_bytes = parse_size(workspace_cap_, "--workspace-cap");
    const auto begin = std::chrono::steady_clock::now();
    const bool packs = !byte_masks_ && options.policy == plan::Policy::kAuto;
    const plan::BitMasks masks = packs ? plan::pack_bit_masks(graph) : plan::BitMasks();
    std::vector<Candidate> candidates;
    candidates.push_back({&graph, plan::Planner(graph, device, options), {}});
    if (!masks.packed.empty())
      candidates.push_back({&masks.graph, plan::Planner(masks.graph, device, options), {}});
    const Candidate& best = choose(candidates, resolve_budget(candidates, device));
    result["planning_seconds"] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result["packed_masks"] = best.graph == &graph ? 0 : masks.packed.size();
    describe(candidates, *best.report, device, result);
    print(console, candidates.front().planner.bounds(), *best.report, result);
    if (!out_.empty())
      write_file(out_, plan::plan_to_json(*best.graph, best.report->plan) + "\n", "--out");
    if (!timeline_.empty())
      write_file(
          timeline_,
          plan::timeline_to_chrome_trace(*best.graph, best.report->plan, best.report->timeline) +
              "\n",
          "--timeline");
    return kDone;
  }

 private:
  // The graph as it is, and with its masks kept as bits.
  struct Candidate {
    const graph::Graph* graph;
    plan::Planner planner;
    std::optional<plan::PlanReport> report;
  };

  // The fastest; of equals the first.
  const Candidate& choose(std::vector<Candidate>& candidates, std::int64_t budget) const {
    const Candidate* best = nullptr;
    for (Candidate& it : candidates) {
      it.report = it.planner.try_plan(budget);
      if (!it.report) continue;
      if (best == nullptr || it.report->predicted_ns < best->report->predicted_ns) best = &it;
    }
    if (best == nullptr)
      throw InfeasibleBudget(budget, minimum(candidates),
                             candidates.front().planner.bounds().pinned_by);
    return *best;
  }
  static std::int64_t minimum(std::vector<Candidate>& candidates) {
    std::int64_t least = candidates.front().planner.minimum_budget_bytes();
    for (Candidate& it : candidates) least = std::min(least, it.planner.minimum_budget_bytes());
    return least;
  }

  graph::Graph load() const {
    const std::filesystem::path path(model_);
    if (path.extension() == ".json") return graph::read_json_file(path);
    if (path.extension() == ".txt") return graph::read_text_file(path);
    plan::StepGraphOptions options;
    if (step_model_ == "paper") {
      options.model = plan::StepModel::kPaper;
    } else if (step_model_ != "stock") {
      throw InvalidArgument(fmt::format("--step-model {}: expected stock or paper", step_model_));
    }
    options.parameters = !activations_only_;
    options.workspaces = workspaces_;
    const std::int64_t image = step_model_ == "paper" || model_.starts_with("alexnet") ? 227 : 224;
    return plan::make_step_graph(plan::make_layer_net(model_, batch_, image), options);
  }

  std::int64_t resolve_budget(std::vector<Candidate>& candidates,
                              const plan::DeviceModel& device) const {
    const SizeSpec spec = parse_size_spec(budget_, "--budget");
    if (spec.kind == SizeSpec::Kind::kMinimum) return minimum(candidates);
    if (spec.kind == SizeSpec::Kind::kNone) return device.memory_bytes;
    const plan::PlanBounds& bounds = candidates.front().planner.bounds();
    return spec.resolve(bounds.stock_peak_bytes, bounds.persistent_bytes);
  }

  void describe(std::vector<Candidate>& candidates, const plan::PlanReport& report,
                const plan::DeviceModel& device, Json& result) const {
    const plan::PlanBounds& bounds = candidates.front().planner.bounds();
    std::int64_t lower_bound = bounds.lower_bound_bytes;
    double time_bound = std::numeric_limits<double>::infinity();
    for (Candidate& it : candidates) {
      lower_bound = std::min(lower_bound, it.planner.bounds().lower_bound_bytes);
      time_bound = std::min(time_bound, it.planner.time_lower_bound_ns(report.budget_bytes));
    }
    result["model"] = model_;
    result["policy"] = policy_;
    result["device"] = device.name;
    result["costs"] = plan::cost_source_name(bounds.cost_source);
    result["order"] = report.order_name;
    result["budget_bytes"] = report.budget_bytes;
    result["peak_bytes"] = report.peak_bytes;
    result["live_bytes"] = report.live_bytes;
    result["arena_bytes"] = report.arena_bytes;
    result["host_peak_bytes"] = report.host_peak_bytes;
    result["file_peak_bytes"] = report.file_peak_bytes;
    result["stock_peak_bytes"] = bounds.stock_peak_bytes;
    result["persistent_bytes"] = bounds.persistent_bytes;
    result["lower_bound_bytes"] = lower_bound;
    result["resident_bound_bytes"] = bounds.resident_bound_bytes;
    result["minimum_budget_bytes"] = minimum(candidates);
    result["minimum_proved"] = minimum(candidates) == lower_bound;
    result["pinned_by"] = bounds.pinned_by;
    result["predicted_seconds"] = report.predicted_ns / kNsPerSecond;
    result["stock_predicted_seconds"] = bounds.stock_predicted_ns / kNsPerSecond;
    result["time_lower_bound_seconds"] = time_bound / kNsPerSecond;
    result["offloaded_bytes"] = report.offloaded_bytes;
    result["prefetched_bytes"] = report.prefetched_bytes;
    result["recomputed_ops"] = report.recomputed_ops;
    result["workspace_bytes"] = report.workspace_bytes;
    if (report.least_ns > 0) {
      result["optimal_bound_seconds"] = report.least_ns / kNsPerSecond;
      result["proved"] = report.is_proved;
    }
    result["steps"] = report.plan.steps.size();
  }

  void print(Console& console, const plan::PlanBounds& bounds, const plan::PlanReport& report,
             const Json& result) const {
    console.print(fmt::format("{} on {}, policy {}, {} order, costs {}", model_,
                              result["device"].get<std::string>(), policy_, report.order_name,
                              plan::cost_source_name(bounds.cost_source)));
    const auto row = [&](const char* what, std::int64_t bytes) {
      console.print(fmt::format("  {:<32} {:>16} bytes  {:>10}", what, bytes, format_size(bytes)));
    };
    row("stock peak", bounds.stock_peak_bytes);
    row("budget", report.budget_bytes);
    row("peak of the plan, its arena", report.peak_bytes);
    row("most live bytes in it", report.live_bytes);
    row("smallest budget found", result["minimum_budget_bytes"].get<std::int64_t>());
    row("LB0: none smaller can work", result["lower_bound_bytes"].get<std::int64_t>());
    row("LB1: none smaller without copies", bounds.resident_bound_bytes);
    row("to the host and the disk", report.offloaded_bytes);
    console.print(fmt::format("  {:<32} {:>16}", "operators run again", report.recomputed_ops));
    console.print(fmt::format("  {:<32} {:>16.6f} s, {:.3f} x stock, at least {:.3f} x",
                              "predicted time of a step", report.predicted_ns / kNsPerSecond,
                              report.predicted_ns / bounds.stock_predicted_ns,
                              result["time_lower_bound_seconds"].get<double>() * kNsPerSecond /
                                  bounds.stock_predicted_ns));
    console.print(fmt::format("  pinned by {}", bounds.pinned_by));
  }

  std::string model_;
  std::string budget_ = "none";
  std::string policy_ = "auto";
  std::string device_ = "a100-80g";
  std::string step_model_ = "stock";
  std::string workspace_cap_;
  std::string out_;
  std::string timeline_;
  std::int64_t batch_ = 32;
  bool activations_only_ = false;
  bool workspaces_ = false;
  bool stream_ = false;
  bool measured_ = false;
  bool byte_masks_ = false;
  bool quick_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace plimsoll::cli
