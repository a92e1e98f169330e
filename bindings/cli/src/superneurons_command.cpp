// SPDX-License-Identifier: Apache-2.0
#include "superneurons_command.h"

#include <cstdint>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/plan/superneurons.h"

namespace plimsoll::cli {
namespace {

class SuperneuronsCommand final : public Command {
 public:
  std::string name() const override { return "superneurons"; }
  std::string summary() const override {
    return "SuperNeurons' layer model: what liveness, offload and recomputation save, step by step";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll superneurons alexnet --batch 200",
            "plimsoll superneurons resnet:stages=6-32-788-6 --batch 16 --json -"};
  }
  void declare(CLI::App& app) override {
    app.add_option("net", net_, fmt::format("One of {}", plan::layer_net_names()))
        ->required()
        ->type_name("NET");
    app.add_option("--batch", batch_, "Samples in one step")->capture_default_str();
  }

  ExitCode run(Console& console, Json& result) override {
    const plan::LayerNet net = plan::make_layer_net(net_, batch_);
    const plan::SuperNeuronsReport report = plan::simulate_superneurons(net);
    result["net"] = net_;
    result["batch"] = batch_;
    result["layers"] = report.layers;
    result["baseline_bytes"] = report.baseline_bytes;
    result["liveness_bytes"] = report.liveness_bytes;
    result["offload_bytes"] = report.offload_bytes;
    result["recompute_bytes"] = report.recompute_bytes[2];
    result["recompute_speed_bytes"] = report.recompute_bytes[0];
    result["recompute_memory_bytes"] = report.recompute_bytes[1];
    result["layer_peak_bytes"] = report.layer_peak_bytes;
    result["layer_peak_as_coded_bytes"] = report.layer_peak_as_coded_bytes;
    result["layer_peak_at"] = report.layer_peak_at;
    result["extra_recomputes"] = {{"speed", report.extra_recomputes[0]},
                                  {"memory", report.extra_recomputes[1]},
                                  {"cost_aware", report.extra_recomputes[2]}};
    result["offloaded_bytes"] = report.offloaded_bytes;
    result["prefetched_bytes"] = report.prefetched_bytes;
    print(console, report);
    return kDone;
  }

 private:
  void print(Console& console, const plan::SuperNeuronsReport& report) const {
    console.print(fmt::format("{}, batch {}, {} layers: outputs and their gradients, fp32", net_,
                              batch_, report.layers));
    const auto row = [&](const char* what, std::int64_t bytes, const std::string& note) {
      console.print(fmt::format(
          "  {:<37} {:>12.3f} MiB  {:>5.1f} %{}", what, static_cast<double>(bytes) / 1048576.0,
          100.0 * static_cast<double>(bytes) / static_cast<double>(report.baseline_bytes), note));
    };
    const auto recomputes = [&](std::size_t mode) {
      return fmt::format("  {} layers run again", report.extra_recomputes[mode]);
    };
    row("baseline", report.baseline_bytes, "");
    row("liveness", report.liveness_bytes, "");
    row("+ offload of CONV outputs", report.offload_bytes, "");
    row("+ recomputation, speed-centric", report.recompute_bytes[0], recomputes(0));
    row("+ recomputation, memory-centric", report.recompute_bytes[1], recomputes(1));
    row("+ recomputation, cost-aware", report.recompute_bytes[2], recomputes(2));
    row("largest layer", report.layer_peak_bytes, fmt::format("  at {}", report.layer_peak_at));
    row("largest layer, aliases counted twice", report.layer_peak_as_coded_bytes, "");
  }

  std::string net_;
  std::int64_t batch_ = 32;
};

}  // namespace

std::unique_ptr<Command> make_superneurons_command() {
  return std::make_unique<SuperneuronsCommand>();
}

}  // namespace plimsoll::cli
