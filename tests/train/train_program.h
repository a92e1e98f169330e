// SPDX-License-Identifier: Apache-2.0
// Runs the program as its users do and reads exit code, standard output and standard error.
//
// Nouns: Outcome, TrainProgram.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.h"

namespace plimsoll::cli {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
  Json json() const { return Json::parse(out); }
  bool is_one_line() const {
    return std::count(err.begin(), err.end(), '\n') == 1 && err.back() == '\n';
  }
};

class TrainProgram : public ::testing::Test {
 protected:
  TrainProgram()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("plimsoll_program_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::filesystem::create_directories(said_);
  }
  ~TrainProgram() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(said_);
  }

  Outcome run(const std::string& arguments, const std::string& prefix = "") const {
    return shell(prefix + " " + PLIMSOLL_PROGRAM + " " + arguments + " 2>" + said("err") + " >" +
                 said("out"));
  }
  // A script that writes said("out") and said("err").
  Outcome shell(const std::string& script) const {
    const int status = std::system(script.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(said("out")),
            text_of(said("err"))};
  }
  // Outside of the folder, where tests look for what was left behind.
  std::string said(const std::string& name) const { return (said_ / name).string(); }
  static std::string text_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::string read(const std::string& name) const { return text_of(folder_ / name); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      found.insert(std::filesystem::relative(entry.path(), folder_).string());
    return found;
  }
  // One line on standard error that holds `text`, and `more`; exit code 2, nothing on standard
  // output.
  void expect_refusal(const std::string& arguments, const std::string& text,
                      const std::string& more = "") const {
    // Whoever trains before he refuses takes so long that it shows.
    const Outcome outcome = run(arguments, "timeout 120");
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::StartsWith("plimsoll train: ")) << arguments;
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(text)) << arguments;
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(more)) << arguments;
    EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  std::filesystem::path folder_;
  std::filesystem::path said_ = folder_.string() + "_said";
  const std::string small_ = "train resnet:stages=1-1,channels=8,image=16 --batch 4 --threads 2 ";
};

}  // namespace plimsoll::cli
