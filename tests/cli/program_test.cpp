// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

#include "command.h"

namespace plimsoll::cli {
namespace {

// A command whose run() is the test's.
class Probe : public Command {
 public:
  explicit Probe(std::function<ExitCode(Console&, Json&)> body) : body_(std::move(body)) {}
  std::string name() const override { return "probe"; }
  std::string summary() const override { return "Runs what a test wants"; }
  std::vector<std::string> examples() const override {
    return {"plimsoll probe", "plimsoll probe --json -"};
  }
  void declare(CLI::App& app) override { static_cast<void>(app); }
  ExitCode run(Console& console, Json& result) override { return body_(console, result); }

 private:
  std::function<ExitCode(Console&, Json&)> body_;
};

int run_probe(std::vector<const char*> arguments, std::function<ExitCode(Console&, Json&)> body) {
  Commands commands;
  commands.push_back(std::make_unique<Probe>(std::move(body)));
  arguments.insert(arguments.begin(), "plimsoll");
  return run_program(static_cast<int>(arguments.size()), arguments.data(), std::move(commands),
                     "2.0.0");
}

ExitCode succeed(Console& console, Json& result) {
  console.print("a line for people");
  result["answer"] = 42;
  return kDone;
}

TEST(Program, JsonOnStandardOutputStandsAlone) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_probe({"probe", "--json", "-"}, succeed), kDone);
  const Json result = Json::parse(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(result["command"], "probe");
  EXPECT_EQ(result["answer"], 42);
}

TEST(Program, QuietPrintsNothing) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_probe({"probe", "--quiet"}, succeed), kDone);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Program, MapsEachErrorToItsExitCode) {
  ::testing::internal::CaptureStderr();
  const auto thrower = [](auto error) {
    return [error](Console&, Json&) -> ExitCode { throw error; };
  };
  EXPECT_EQ(run_probe({"probe"}, thrower(InvalidArgument("x"))), 2);
  EXPECT_EQ(run_probe({"probe"}, thrower(InvalidFile("f", "line 1", "x"))), 2);
  EXPECT_EQ(run_probe({"probe"}, thrower(InfeasibleBudget(1, 2, "op"))), 3);
  EXPECT_EQ(run_probe({"probe"}, thrower(HostOutOfMemory("x", {}))), 4);
  EXPECT_EQ(run_probe({"probe"}, thrower(InternalError("x"))), 70);
  EXPECT_EQ(run_probe({"probe"}, thrower(std::runtime_error("x"))), 70);
  EXPECT_EQ(run_probe({"probe"}, thrower(Interrupted())), 130);
  EXPECT_EQ(run_probe({"probe", "--no-such-flag"}, succeed), 2);
  EXPECT_EQ(run_probe({"nothing"}, succeed), 2);
  EXPECT_EQ(run_probe({}, succeed), 2);
  ::testing::internal::GetCapturedStderr();
}

TEST(Program, InfeasibleBudgetIsInTheJson) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  run_probe({"probe", "--json", "-"},
            [](Console&, Json&) -> ExitCode { throw InfeasibleBudget(10, 30, "op c"); });
  ::testing::internal::GetCapturedStderr();
  const Json result = Json::parse(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(result["minimum_budget_bytes"], 30);
  EXPECT_EQ(result["pinned_by"], "op c");
}

TEST(Program, AHintEndsTheLineOfTheErrorAndIsInTheJson) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  run_probe({"probe", "--json", "-"}, [](Console&, Json& result) -> ExitCode {
    result["hint"] = "write more";
    throw InfeasibleBudget(10, 30, "op c");
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "plimsoll probe: a budget of 10 B cannot work: it takes 30 B, pinned by op c (10 bytes "
            "asked, 30 bytes needed); write more\n");
  EXPECT_EQ(Json::parse(::testing::internal::GetCapturedStdout())["hint"], "write more");
}

TEST(Program, UnwritableJsonIsRefusedBeforeTheWork) {
  ::testing::internal::CaptureStderr();
  bool ran = false;
  EXPECT_EQ(run_probe({"probe", "--json", "/no/such/folder/x.json"},
                      [&](Console&, Json&) {
                        ran = true;
                        return kDone;
                      }),
            2);
  EXPECT_FALSE(ran);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("/no/such/folder/x.json"));
}

TEST(Program, AnEmptyValueOfAFlagIsRefusedBeforeTheWork) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_probe({"probe", "--json", ""}, succeed), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "plimsoll probe: --json: '' is empty; write a value, or leave --json out\n");
}

[[noreturn]] void run_with_full_standard_output(const std::vector<const char*>& arguments) {
  if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(1);
  std::_Exit(run_probe(arguments, succeed));
}

TEST(Program, StandardOutputThatCannotBeWrittenIsNoSuccess) {
  const char* text = "plimsoll probe: standard output could not be written";
  EXPECT_EXIT(run_with_full_standard_output({"probe"}), ::testing::ExitedWithCode(4), text);
  EXPECT_EXIT(run_with_full_standard_output({"probe", "--json", "-"}), ::testing::ExitedWithCode(4),
              text);
}

// A standard output whose first write is cut in half; later ones would go through.
struct CutStream {
  std::string text;
  bool was_cut = false;
};

ssize_t write_cut(void* cookie, const char* bytes, std::size_t count) {
  auto* stream = static_cast<CutStream*>(cookie);
  const std::size_t taken = stream->was_cut ? count : count / 2;
  stream->was_cut = true;
  stream->text.append(bytes, taken);
  return static_cast<ssize_t>(taken);
}

TEST(Program, BehindAJsonThatWasCutNoSecondOneIsWritten) {
  CutStream stream;
  std::FILE* const before = stdout;
  stdout = ::fopencookie(&stream, "w",
                         {.read = nullptr, .write = write_cut, .seek = nullptr, .close = nullptr});
  ::testing::internal::CaptureStderr();
  const int code = run_probe({"probe", "--json", "-"}, succeed);
  std::fclose(stdout);
  stdout = before;
  EXPECT_EQ(code, 4);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("standard output could not be written to its end"));
  EXPECT_THAT(stream.text, ::testing::StartsWith("{\n  \"command\": \"probe\""));
  EXPECT_THAT(stream.text, ::testing::Not(::testing::HasSubstr("error")));
}

TEST(Program, WhereTheJsonOfAnErrorFailsTheErrorsOwnCodeStays) {
  const auto folder = std::filesystem::path(::testing::TempDir()) /
                      ("plimsoll_program_json_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_probe({"probe", "--json", (folder / "x").c_str()},
                      [&](Console&, Json&) -> ExitCode {
                        std::filesystem::remove_all(folder);
                        throw InfeasibleBudget(10, 30, "op c");
                      }),
            3);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::AllOf(::testing::HasSubstr("30 bytes needed"),
                               ::testing::HasSubstr("plimsoll probe: --json: '")));
}

}  // namespace
}  // namespace plimsoll::cli
