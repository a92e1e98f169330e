// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "plimsoll/base/error.h"

#include "command.h"
#include "doctor_command.h"

namespace plimsoll::cli {
namespace {

// Stands where a command would that needs LibTorch, and says so whatever it is given.
class MissingCommand : public Command {
 public:
  MissingCommand(std::string name, std::string summary)
      : name_(std::move(name)), summary_(std::move(summary)) {}
  std::string name() const override { return name_; }
  std::string summary() const override { return summary_ + " (not in this build: no LibTorch)"; }
  std::vector<std::string> examples() const override {
    return {"plimsoll doctor", "./dev build && ./dev plimsoll " + name_ + " --help"};
  }
  void declare(CLI::App& app) override { app.allow_extras(); }
  ExitCode run(Console&, Json&) override { throw Unsupported(missing_libtorch()); }

 private:
  std::string name_;
  std::string summary_;
};

}  // namespace

void add_torch_commands(Commands& commands) {
  commands.push_back(
      std::make_unique<MissingCommand>("train", "Trains a model inside a memory budget"));
  commands.push_back(std::make_unique<MissingCommand>(
      "models", "Lists the models with their keys, defaults and numbers of parameters"));
  commands.push_back(make_doctor_command({}));
}

std::string built_with_libtorch() { return "none"; }

}  // namespace plimsoll::cli
