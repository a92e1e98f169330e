// SPDX-License-Identifier: Apache-2.0
#include "verify_command.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/order/certificate.h"

#include "graph_argument.h"

namespace plimsoll::cli {
namespace {

std::string read_certificate_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InvalidFile(path, "", "cannot be read");
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class VerifyCommand final : public Command {
 public:
  std::string name() const override { return "verify"; }
  std::string summary() const override {
    return "Check a certificate of `schedule` with code that shares nothing with the solvers";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll schedule tests/data/graphs/inference/pnas-cifar.txt --certificate order.json",
            "plimsoll verify tests/data/graphs/inference/pnas-cifar.txt order.json --json -"};
  }
  void declare(CLI::App& app) override {
    graph_.declare(app);
    app.add_option("certificate", certificate_, "What `schedule --certificate` wrote")
        ->required()
        ->type_name("CERTIFICATE");
    app.add_option("--max-states", limits_.max_states, "States the checker's own search may visit")
        ->capture_default_str();
    app.add_option("--time-limit", limits_.seconds, "Seconds for the checker's own search")
        ->type_name("S");
  }

  ExitCode run(Console& console, Json& result) override {
    if (std::isnan(limits_.seconds)) throw InvalidArgument("--time-limit: is not a number");
    const graph::Graph graph = graph_.read();
    const order::Certificate certificate =
        order::read_certificate(read_certificate_file(certificate_), certificate_);
    const order::Verdict verdict = order::verify(graph, certificate, limits_);
    result["valid"] = verdict.valid();
    result["peak_valid"] = verdict.peak_valid;
    result["bound_valid"] = verdict.bound_valid;
    result["bound_checked"] = verdict.bound_checked;
    result["peak_bytes"] = verdict.peak_bytes;
    result["lower_bound_bytes"] = verdict.lower_bound_bytes;
    result["states"] = verdict.states;
    if (!verdict.reason.empty()) result["reason"] = verdict.reason;
    if (verdict.valid()) {
      console.print(
          fmt::format("valid: peak {} bytes, lower bound {} bytes{}", verdict.peak_bytes,
                      verdict.lower_bound_bytes,
                      verdict.peak_bytes == verdict.lower_bound_bytes ? ", optimal" : ""));
      return kDone;
    }
    console.print(fmt::format("not valid: {}", verdict.reason));
    return kCheckFailed;
  }

 private:
  GraphArgument graph_;
  std::string certificate_;
  order::VerifyLimits limits_;
};

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace plimsoll::cli
