// SPDX-License-Identifier: Apache-2.0
#include "doctor_command.h"

#include <string>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

namespace plimsoll::cli {
namespace {

Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

Json devices_json(const MachineFacts& facts) {
  Json devices = Json::array();
  for (const MachineFacts::Gpu& gpu : facts.devices)
    devices.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  return devices;
}

Json data_json(const MachineFacts& facts) {
  if (!facts.fashion_mnist_problem.empty()) return {{"fashion-mnist", nullptr}};
  return {{"fashion-mnist",
           {{"folder", facts.fashion_mnist_folder.string()},
            {"test_images", facts.fashion_mnist_images}}}};
}

void describe_libtorch(const MachineFacts& facts, Json& result) {
  result["self_test"] = nullptr;
  if (!facts.libtorch) return;
  const LibTorchFacts& libtorch = *facts.libtorch;
  result["threads"] = libtorch.threads;
  result["copy_threads"] = libtorch.copy_threads;
  result["strict_pointers"] = libtorch.can_forbid_pointers;
  result["self_test"] = libtorch.self_test.empty() ? "ok" : libtorch.self_test;
}

std::string text_of(const Json& value) {
  if (value.is_null()) return "not found";
  if (value.is_string()) return value.get<std::string>();
  return value.empty() ? "none" : value.dump();
}

class DoctorCommand : public Command {
 public:
  explicit DoctorCommand(LibTorchProbe probe) : probe_(std::move(probe)) {}
  std::string name() const override { return "doctor"; }
  std::string summary() const override {
    return "Says what was found on this machine and what will not work, and why";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll doctor", "plimsoll doctor --json -"};
  }
  void declare(CLI::App&) override {}
  ExitCode run(Console& console, Json& result) override {
    const MachineFacts facts =
        find_machine_facts(probe_ ? std::optional(probe_()) : std::optional<LibTorchFacts>());
    describe_libtorch(facts, result);
    result["cuda_toolkit"] = or_null(facts.cuda_toolkit);
    result["driver"] = or_null(facts.driver);
    result["devices"] = devices_json(facts);
    result["cudnn"] = or_null(facts.cudnn);
    result["io_uring"] = facts.has_io_uring ? Json(*facts.has_io_uring) : Json();
    result["data"] = data_json(facts);
    result["problems"] = problems_of(facts);
    for (const char* key : {"libtorch", "threads", "cuda_toolkit", "driver", "devices", "cudnn",
                            "io_uring", "data", "self_test"})
      console.print(fmt::format("{:<13} {}", key, text_of(result[key])));
    for (const Json& problem : result["problems"])
      console.print("note: " + problem.get<std::string>());
    return facts.libtorch && !facts.libtorch->self_test.empty() ? kCheckFailed : kDone;
  }

 private:
  LibTorchProbe probe_;
};

}  // namespace

std::unique_ptr<Command> make_doctor_command(LibTorchProbe probe) {
  return std::make_unique<DoctorCommand>(std::move(probe));
}

}  // namespace plimsoll::cli
