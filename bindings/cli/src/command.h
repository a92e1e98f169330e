// SPDX-License-Identifier: Apache-2.0
// What a command of the program is.
//
// Nouns: Command, ExitCode, Json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "console.h"

namespace plimsoll::cli {

using Json = nlohmann::ordered_json;

// The program's exit codes, a stable contract.
enum ExitCode : int {
  kDone = 0,
  kCheckFailed = 1,  // a check that was asked for failed
  kBadUsage = 2,     // bad usage or a bad input file
  kInfeasible = 3,   // the budget cannot work
  kOutOfMemory = 4,  // host or disk
  kOurBug = 70,
  kInterruptedExit = 130,
};

// One command. declare() binds flags to members, run() works and fills `result` with its JSON keys
// (the program adds command, version and libtorch, and writes it also when run() returns
// kCheckFailed). `seed` and `threads` stand in it already, null and 1: what draws random numbers or
// runs on more threads says so. Errors are thrown as plimsoll::Error and mapped to exit codes by
// the program; a `hint` put into `result` before ends their line.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  // Two command lines that work when pasted.
  virtual std::vector<std::string> examples() const = 0;
  virtual void declare(CLI::App& app) = 0;
  virtual ExitCode run(Console& console, Json& result) = 0;
};

using Commands = std::vector<std::unique_ptr<Command>>;

// Adds the commands that need no LibTorch, and those that do: in a build without it, commands that
// say so, and a `doctor` that says what it can. Defined once each for the build's kind.
void add_commands(Commands& commands);
void add_torch_commands(Commands& commands);

// The LibTorch release of this build, or "none".
std::string built_with_libtorch();

// Parses the command line, runs the command and returns the exit code. Never throws.
int run_program(int argc, const char* const* argv, Commands commands, const std::string& libtorch);

}  // namespace plimsoll::cli
