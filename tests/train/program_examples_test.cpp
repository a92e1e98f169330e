// SPDX-License-Identifier: Apache-2.0
// The examples that --help shows work when pasted.
#include "train_program.h"

namespace plimsoll::cli {
namespace {

class Examples : public TrainProgram {
 protected:
  std::vector<std::string> examples_of(const std::string& command) const {
    const std::string help = run(command + " --help").out;
    std::istringstream lines(help.substr(help.find("Examples:")));
    std::vector<std::string> examples;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.rfind("  plimsoll ", 0) == 0)
      examples.push_back(line.substr(std::string("  plimsoll ").size()));
    return examples;
  }
  void expect_examples_work(const std::string& command) const {
    const std::vector<std::string> examples = examples_of(command);
    EXPECT_EQ(examples.size(), 2U) << command;
    for (const std::string& example : examples) {
      const Outcome outcome = run(example);
      EXPECT_EQ(outcome.code, 0) << example << "\n" << outcome.err;
      EXPECT_THAT(outcome.out, ::testing::Not(::testing::IsEmpty())) << example;
      if (example.find("--json -") != std::string::npos) {
        EXPECT_EQ(outcome.json()["command"], command);
      }
    }
  }
};

TEST_F(Examples, OfTrainWork) { expect_examples_work("train"); }

TEST_F(Examples, OfModelsWork) { expect_examples_work("models"); }

TEST_F(Examples, OfDoctorWork) { expect_examples_work("doctor"); }

}  // namespace
}  // namespace plimsoll::cli
