// SPDX-License-Identifier: Apache-2.0
// What every command owes: the keys of its JSON, errors of one line, figures that are true.
#include <map>

#include "train_program.h"

namespace plimsoll::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class Contract : public TrainProgram {
 protected:
  // The names under "Subcommands:" of --help.
  std::vector<std::string> commands() const {
    const std::string help = run("--help").out;
    std::istringstream lines(help.substr(help.find("Subcommands:")));
    std::vector<std::string> names;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.rfind("  ", 0) == 0) {
      if (line[2] == ' ') continue;  // a summary's second line
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
    return names;
  }
};

TEST_F(Contract, EveryCommandsJsonHasTheKeysOfAll) {
  const std::string data = PLIMSOLL_TEST_DATA;
  const std::string graph = data + "/darts-cell.json";
  const std::string certificate = path("certificate");
  write("layout.csv", "id,lower,upper,size\n0,0,2,64\n1,1,3,64\n");
  ASSERT_EQ(run("schedule " + graph + " --certificate " + certificate).code, 0);
  const std::map<std::string, std::string> arguments = {
      {"train", "mlp:layers=1,dim=8,image=8 --batch 2 --steps 1 --seed 7 --threads 1"},
      {"models", "mlp"},
      {"doctor", ""},
      {"schedule", graph},
      {"verify", graph + " " + certificate},
      {"superneurons", "alexnet --batch 1"},
      {"explain", data + "/explain/snapshot_protocol_4.pickle"},
      {"plan", "alexnet --batch 1 --quick"},
      {"layout", path("layout.csv") + " --seed 7"}};
  for (const std::string& command : commands()) {
    ASSERT_TRUE(arguments.contains(command)) << "write a case for " << command;
    const Outcome outcome = run(command + " " + arguments.at(command) + " --json -");
    ASSERT_EQ(outcome.code, 0) << command << "\n" << outcome.err;
    const Json json = outcome.json();
    EXPECT_EQ(json["command"], command);
    EXPECT_TRUE(json["version"].is_string()) << command;
    EXPECT_TRUE(json["libtorch"].is_string()) << command;
    EXPECT_TRUE(json.contains("seed")) << command;
    ASSERT_TRUE(json.contains("threads")) << command;
    EXPECT_GE(json["threads"], 1) << command;
    // Whatever draws random numbers can be told the seed, and says it.
    const bool draws = run(command + " --help").out.find("--seed") != std::string::npos;
    EXPECT_EQ(json["seed"], draws ? Json(7) : Json()) << command;
    if (command == "train") {
      EXPECT_EQ(json["threads"], 1);
    }
  }
  EXPECT_EQ(commands().size(), arguments.size());
}

TEST_F(Contract, AWordThatIsNotUnderstoodIsOneLineOfItsCommand) {
  expect_refusal("train mlp --bogus 1", "plimsoll train: '--bogus' is no flag, the nearest is '--");
  expect_refusal("train mlp --budgte 33%", "the nearest is '--budget'");
  expect_refusal("train mlp -- vgg16", "plimsoll train: 'vgg16' is one word too many");
  expect_refusal("train mlp vgg16", "plimsoll train: 'vgg16' is one word too many");
  expect_refusal("train", "plimsoll train: MODEL is missing");
  expect_refusal("train mlp --steps",
                 "plimsoll train: --steps: its value is missing; write --steps N");
  expect_refusal("train mlp --steps 1 --epochs 1", "exclude one another; leave one out");
  const Outcome unknown = run("trian mlp");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, StartsWith("plimsoll: 'trian' is no command, the nearest is 'train'; "));
  EXPECT_TRUE(unknown.is_one_line()) << unknown.err;
}

TEST_F(Contract, ABudgetThatLooksLikeAShareGetsAHint) {
  const std::string hint = "33 is bytes; for a share of stock's peak write 33%";
  for (const std::string level : {"eager", "allocator"}) {
    const Outcome outcome = run(small_ + "--steps 2 --json - --budget 33 --level " + level);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::EndsWith("; " + hint + "\n"));
    EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
    EXPECT_EQ(outcome.json()["hint"], hint);
  }
  for (const std::string budget : {"101", "33B", "0.001%"}) {
    const Outcome outcome = run(small_ + "--steps 2 --json - --budget " + budget);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_FALSE(outcome.json().contains("hint")) << budget;
  }
}

TEST_F(Contract, TheAllocatorLevelsRefusalNamesTheStepsPeakAndABudgetThatWorks) {
  for (const std::string model :
       {"resnet:stages=1-1,channels=8,image=16", "mlp:layers=1,dim=64,image=16",
        "gpt:layers=1,dim=16,heads=2,seq=8", "mlp:layers=2,dim=64,image=16 --autocast bf16",
        "mlp:layers=2,dim=64,image=16 --optimizer adam"}) {
    const std::string words =
        "train " + model + " --batch 4 --threads 2 --steps 3 --level allocator --json - --budget ";
    const Outcome refused = run(words + "1KiB");
    ASSERT_EQ(refused.code, 3) << refused.err;
    const Json json = refused.json();
    const std::int64_t bytes = json["peak_op_bytes"];
    const std::int64_t minimum = json["minimum_budget_bytes"];
    EXPECT_GT(bytes, 0) << model;
    EXPECT_LT(bytes, minimum) << model;
    EXPECT_EQ(json["stock_peak_bytes"], minimum) << model;
    EXPECT_EQ(json["pinned_by"], json["peak_op"].get<std::string>() + " (allocates " +
                                     std::to_string(bytes) + " bytes at the step's peak)");
    EXPECT_THAT(refused.err, AllOf(HasSubstr("pinned by " + json["pinned_by"].get<std::string>()),
                                   HasSubstr(std::to_string(minimum) + " bytes needed")));
    const Outcome retried = run(words + std::to_string(minimum));
    EXPECT_EQ(retried.code, 0) << model << "\n" << retried.err;
    // That operator makes the peak, and with less than its bytes below it there is none.
    EXPECT_EQ(run(words + std::to_string(minimum - 64)).code, 3) << model;
  }
}

TEST_F(Contract, DoctorSaysWhatWillNotWorkOnThisMachine) {
  const Outcome outcome = run("doctor --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = outcome.json();
  const auto problems = json["problems"].get<std::vector<std::string>>();
  EXPECT_THAT(problems,
              Contains(MatchesRegex("training runs on the CPU, whether there is a GPU or not: "
                                    "device cuda: its memory is not held by .+")));
  EXPECT_THAT(problems, Contains(HasSubstr("--level planned, guided, captured and --policy")));
  const auto expect_if = [&](bool is_so, const std::string& text) {
    EXPECT_THAT(std::count_if(problems.begin(), problems.end(),
                              [&](const std::string& it) { return it.find(text) != it.npos; }),
                is_so ? 1 : 0)
        << text;
  };
  expect_if(json["devices"].empty(), "no GPU: ");
  expect_if(json["cuda_toolkit"].is_null(), "no CUDA 13 runtime");
  expect_if(json["cudnn"].is_null(), "no cuDNN 9");
  expect_if(json["io_uring"] == false, "no io_uring");
  expect_if(json["copy_threads"] < json["threads"], "a session's copies take");
  expect_if(json["libtorch"].get<std::string>().rfind("2.11", 0) == 0, "strict_pointers");
  EXPECT_EQ(json["strict_pointers"], json["libtorch"].get<std::string>().rfind("2.11", 0) != 0);
#ifdef __GNUC__
#ifndef __clang__
  EXPECT_EQ(json["copy_threads"], json["threads"]) << "GCC's builds share LibTorch's OpenMP";
#endif
#endif
  for (const std::string& problem : problems) EXPECT_THAT(run("doctor").out, HasSubstr(problem));
}

}  // namespace
}  // namespace plimsoll::cli
