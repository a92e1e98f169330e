// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/output_file.h"

#include "command.h"
#include "usage_error.h"

namespace plimsoll::cli {
namespace {

struct CommonFlags {
  std::string json;
  bool quiet = false;
  bool progress = false;
};

void declare_common(CLI::App& app, CommonFlags& flags) {
  app.add_option("--json", flags.json, "Write the result as JSON to FILE, '-' for standard output")
      ->type_name("FILE");
  app.add_flag("--quiet", flags.quiet, "Print nothing but errors");
  app.add_flag("--progress", flags.progress, "Show progress also where there is no terminal");
}

std::string footer(const Command& command) {
  std::string text = "Examples:";
  for (const std::string& example : command.examples()) text += "\n  " + example;
  return text;
}

ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kUnsupported:
      return kBadUsage;
    case ErrorCode::kInfeasibleBudget:
      return kInfeasible;
    case ErrorCode::kDeviceOutOfMemory:
    case ErrorCode::kHostOutOfMemory:
    case ErrorCode::kDeviceError:
      return kOutOfMemory;
    case ErrorCode::kInterrupted:
      return kInterruptedExit;
    case ErrorCode::kDivergence:
    case ErrorCode::kInternal:
      return kOurBug;
  }
  return kOurBug;
}

void write_json(const CommonFlags& flags, const Json& result) {
  if (flags.json.empty()) return;
  const std::string text = result.dump(2) + "\n";
  if (flags.json == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_file(flags.json, text, "--json");
  }
}

// Puts an error into the result, with the figures that scripts act on.
void describe(const Error& error, Json& result) {
  result["error"] = {{"code", error_code_name(error.code())}, {"message", error.what()}};
  if (const auto* budget = dynamic_cast<const InfeasibleBudget*>(&error)) {
    result["budget_bytes"] = budget->budget_bytes();
    result["minimum_budget_bytes"] = budget->minimum_budget_bytes();
    result["pinned_by"] = budget->pinned_by();
  }
}

// A script's unset variable: `--save "$FILE"` must not train for nothing.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) continue;
    for (const std::string& value : option->results())
      if (value.empty())
        throw InvalidArgument(fmt::format("{}: '' is empty; write a value, or leave {} out",
                                          option->get_name(), option->get_name()));
  }
}

// Two results for one file: the later would replace the earlier. What an option of type FILE names
// is written.
void refuse_shared_files(const CLI::App& app) {
  std::map<std::string, std::string> flag_of;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_type_name().rfind("FILE", 0) != 0) continue;
    for (const std::string& name : option->results()) {
      if (name == "-" && option->get_name() == "--json") continue;
      const std::string file = replaced_file(name);
      if (file.empty()) continue;
      const auto [at, is_new] = flag_of.emplace(file, option->get_name());
      if (!is_new)
        throw InvalidArgument(fmt::format("{}: '{}' is what {} writes; name another file",
                                          option->get_name(), name, at->second));
    }
  }
}

void check_standard_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw HostOutOfMemory("standard output could not be written to its end", {});
}

// The first error is the one that counts: where the JSON fails too, that is one line more.
void report_error(const Error& error, const Command& command, const CommonFlags& flags,
                  Console& console, Json& result) {
  const std::string hint = result.contains("hint") ? "; " + result["hint"].get<std::string>() : "";
  console.warn(fmt::format("plimsoll {}: {}{}", command.name(), error.what(), hint));
  describe(error, result);
  if (error.code() != ErrorCode::kInfeasibleBudget && flags.json != "-") return;
  // Behind a document that was cut a second one makes neither readable.
  if (flags.json == "-" && std::ferror(stdout) != 0) return;
  try {
    write_json(flags, result);
  } catch (const Error& second) {
    console.warn(fmt::format("plimsoll {}: {}", command.name(), second.what()));
  }
}

ExitCode run_command(Command& command, const CommonFlags& flags, const CLI::App& app,
                     Json& result) {
  Console console({.quiet = flags.quiet,
                   .force_progress = flags.progress,
                   .json_on_stdout = flags.json == "-"});
  try {
    refuse_empty_values(app);
    refuse_shared_files(app);
    if (!flags.json.empty() && flags.json != "-") check_writable(flags.json, "--json");
    const ExitCode code = command.run(console, result);
    console.end_progress();
    write_json(flags, result);
    check_standard_output();
    return code;
  } catch (const Error& error) {
    report_error(error, command, flags, console, result);
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    console.warn(fmt::format("plimsoll {}: this machine's memory is exhausted", command.name()));
    return kOutOfMemory;
  }
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the commands end with the run
int run_program(int argc, const char* const* argv, Commands commands, const std::string& libtorch) {
  CLI::App app(
      "Trains neural networks inside a fixed memory budget, bit-identical to stock LibTorch");
  app.name("plimsoll");
  app.set_version_flag("--version",
                       fmt::format("plimsoll {} (LibTorch {})", PLIMSOLL_VERSION, libtorch));
  app.require_subcommand(1);
  CommonFlags flags;
  Command* chosen = nullptr;
  try {
    for (const auto& command : commands) {
      CLI::App* sub = app.add_subcommand(command->name(), command->summary());
      sub->set_version_flag("--version",
                            fmt::format("plimsoll {} (LibTorch {})", PLIMSOLL_VERSION, libtorch));
      declare_common(*sub, flags);
      command->declare(*sub);
      sub->footer(footer(*command));
      sub->callback([&chosen, pointer = command.get()] { chosen = pointer; });
    }
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kDone : kOurBug;
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    fmt::print(stderr, "{}\n", usage_error(app, error, words));
    return kBadUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "plimsoll: {}\n", error.what());
    return kOurBug;
  }
  try {
    Console::take_signals();
    Json result = {{"command", chosen->name()},
                   {"version", PLIMSOLL_VERSION},
                   {"libtorch", libtorch},
                   {"seed", nullptr},
                   {"threads", 1}};
    return run_command(*chosen, flags, *app.get_subcommands().front(), result);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plimsoll {}: unexpected: {}\n", chosen->name(), error.what());
    return kOurBug;
  }
}

}  // namespace plimsoll::cli
