// SPDX-License-Identifier: Apache-2.0
// Runs the program in this process, as people type it, and keeps what it said.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "command.h"

namespace plimsoll::cli::testing {

struct CommandRun {
  int exit_code = 0;
  std::string out;
  std::string err;
  Json json() const { return Json::parse(out); }
};

inline CommandRun run(const std::vector<std::string>& words,
                      const std::function<void(Commands&)>& add = add_commands) {
  Commands commands;
  add(commands);
  std::vector<const char*> arguments = {"plimsoll"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  CommandRun result;
  result.exit_code = run_program(static_cast<int>(arguments.size()), arguments.data(),
                                 std::move(commands), "none");
  result.out = ::testing::internal::GetCapturedStdout();
  result.err = ::testing::internal::GetCapturedStderr();
  return result;
}

// A path of this process's own: tests run side by side.
inline std::string scratch(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) /
          ("plimsoll-" + std::to_string(::getpid()) + "-" + name))
      .string();
}

inline std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Writes a file and returns its path.
inline std::string write_text(const std::string& name, const std::string& text) {
  const std::string path = scratch(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace plimsoll::cli::testing
