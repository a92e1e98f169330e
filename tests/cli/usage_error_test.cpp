// SPDX-License-Identifier: Apache-2.0
// Command lines that cannot be parsed: one line that names the place, the value and what is right.
#include <algorithm>

#include <gmock/gmock.h>

#include "command_run.h"

namespace plimsoll::cli::testing {
namespace {

void expect_refusal(const std::vector<std::string>& words, const std::string& line) {
  const CommandRun result = run(words);
  EXPECT_EQ(result.exit_code, 2) << line;
  EXPECT_EQ(result.err, line + "\n");
  EXPECT_EQ(result.out, "") << line;
}

const std::string kCommands = "schedule, verify, superneurons, explain, plan, layout";

TEST(UsageError, AnUnknownCommandNamesTheNearestAndAll) {
  expect_refusal(
      {"scedule", "x.json"},
      "plimsoll: 'scedule' is no command, the nearest is 'schedule'; there are " + kCommands);
  // A command further on does not make it another command's line.
  expect_refusal({"lay", "plan", "alexnet"},
                 "plimsoll: 'lay' is no command, the nearest is 'plan'; there are " + kCommands);
}

TEST(UsageError, AMissingCommandNamesAll) {
  expect_refusal({}, "plimsoll: a command is missing; there are " + kCommands +
                         " (`plimsoll --help` says more)");
  expect_refusal({"--json", "-", "plan", "alexnet"},
                 "plimsoll: '--json' stands where the command should; there are " + kCommands +
                     ", and --help, --version");
}

TEST(UsageError, AnUnknownFlagNamesTheNearest) {
  const std::string help = "; `plimsoll superneurons --help` lists all";
  expect_refusal({"superneurons", "alexnet", "--bath", "1"},
                 "plimsoll superneurons: '--bath' is no flag, the nearest is '--batch'" + help);
  expect_refusal({"superneurons", "alexnet", "--bath=1"},
                 "plimsoll superneurons: '--bath' is no flag, the nearest is '--batch'" + help);
  // It is what to mend first where an argument is missing too.
  expect_refusal({"superneurons", "--quite"},
                 "plimsoll superneurons: '--quite' is no flag, the nearest is '--quiet'" + help);
}

TEST(UsageError, AWordTooManyIsNamed) {
  expect_refusal({"superneurons", "alexnet", "vgg16", "--batch", "1"},
                 "plimsoll superneurons: 'vgg16' is one word too many; leave it out, or write the "
                 "flag it belongs to");
}

TEST(UsageError, AMissingArgumentIsNamed) {
  expect_refusal({"superneurons"},
                 "plimsoll superneurons: NET is missing; `plimsoll superneurons --help` has "
                 "examples");
}

TEST(UsageError, AFlagWithoutItsValueOrTwiceIsNamed) {
  expect_refusal({"superneurons", "alexnet", "--json"},
                 "plimsoll superneurons: --json: its value is missing; write --json FILE");
  expect_refusal({"superneurons", "alexnet", "--json", "a", "--json", "b"},
                 "plimsoll superneurons: --json: stands 2 times ('a', 'b'); write it once");
  expect_refusal({"superneurons", "alexnet", "--quiet=x"},
                 "plimsoll superneurons: --quiet: takes no value; write --quiet alone");
}

TEST(UsageError, AValueOfTheWrongKindOrOutOfRangeSaysWhatIsRight) {
  expect_refusal({"superneurons", "alexnet", "--batch", "many"},
                 "plimsoll superneurons: --batch: 'many' must be a whole number");
  expect_refusal({"schedule", "x.json", "--time-limit", "long"},
                 "plimsoll schedule: --time-limit: 'long' must be a number of seconds");
  expect_refusal({"explain", "x.pickle", "--device", "-3"},
                 "plimsoll explain: --device: '-3' must be a whole number from 0 to 1048576");
}

TEST(UsageError, HelpAndVersionAreNone) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"--version"}, {"plan", "--help"}}) {
    const CommandRun result = run(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_NE(result.out, "");
  }
}

}  // namespace
}  // namespace plimsoll::cli::testing
