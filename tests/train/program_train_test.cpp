// SPDX-License-Identifier: Apache-2.0
// Runs the program as its users do and reads exit code, standard output and standard error.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.h"

namespace plimsoll::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
  Json json() const { return Json::parse(out); }
};

class TrainProgram : public ::testing::Test {
 protected:
  TrainProgram()
      : folder_(fs::path(::testing::TempDir()) /
                ("plimsoll_program_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~TrainProgram() override { fs::remove_all(folder_); }

  Outcome run(const std::string& arguments, const std::string& prefix = "") const {
    const std::string command = prefix + " " + PLIMSOLL_PROGRAM + " " + arguments + " 2>" +
                                (folder_ / "err").string() + " >" + (folder_ / "out").string();
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out"), read("err")};
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
    return text.str();
  }
  void expect_refusal(const std::string& arguments, const std::string& text) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text)) << arguments;
    EXPECT_EQ(outcome.out, "");
  }

  fs::path folder_;
  const std::string small_ = "train resnet:stages=1-1,channels=8,image=16 --batch 4 --threads 2 ";
};

TEST_F(TrainProgram, AFullHostTierIsOutOfMemoryNotATooSmallBudget) {
  const Outcome outcome = run(small_ + "--budget 60% --host-limit 16KiB --steps 3 --json -");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("outside of the budget"));
  const Outcome spilled = run(
      small_ + "--budget 60% --host-limit 16KiB --steps 3 --json - --spill " + folder_.string());
  EXPECT_EQ(spilled.code, 0) << spilled.err;
  EXPECT_GT(spilled.json()["file_bytes"], 0);
}

TEST_F(TrainProgram, ListsWhatLivesOutsideOfTheBudget) {
  const Outcome tight = run(small_ + "--budget 60% --steps 3 --json -");
  ASSERT_EQ(tight.code, 0) << tight.err;
  const Json outside = tight.json()["outside"];
  EXPECT_EQ(outside["host_tier_bytes"], tight.json()["host_bytes"]);
  EXPECT_GT(outside["host_tier_bytes"], 0);
  EXPECT_EQ(outside["file_tier_bytes"], 0);
  EXPECT_GT(outside["rest_of_process_bytes"], 1 << 20) << "LibTorch's code alone is more";
  // What training holds is in the arena; without one it is on the heap.
  const Outcome counted = run(small_ + "--level allocator --steps 3 --json -");
  ASSERT_EQ(counted.code, 0) << counted.err;
  EXPECT_GE(counted.json()["outside"]["libtorch_heap_bytes"],
            counted.json()["persistent_bytes"].get<std::int64_t>());
  EXPECT_LT(outside["libtorch_heap_bytes"], counted.json()["outside"]["libtorch_heap_bytes"]);
  EXPECT_THAT(run(small_ + "--budget 60% --steps 3").out, HasSubstr("outside of it: host tier"));
}

TEST_F(TrainProgram, TrainsInsideABudgetIdenticalToStock) {
  const Outcome outcome = run(small_ + "--budget 80% --steps 4 --against-stock --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["identical"], true);
  EXPECT_TRUE(json["first_difference"].is_null());
  EXPECT_EQ(json["level"], "eager");
  EXPECT_EQ(json["losses"].size(), 4U);
  EXPECT_LE(json["peak_bytes"], json["budget_bytes"]);
  EXPECT_LT(json["budget_bytes"], json["stock_peak_bytes"]);
  EXPECT_GT(json["offloaded_bytes"], 0);
  for (const char* key :
       {"command", "version", "libtorch", "seed", "threads", "model", "batch", "steps", "policy",
        "peak_op", "persistent_bytes", "lower_bound_bytes", "pinned_by", "prefetched_bytes",
        "moved_lower_bound_bytes", "recomputed_ops", "accuracy", "step_seconds", "time_ratio"})
    EXPECT_TRUE(json.contains(key)) << key;
}

TEST_F(TrainProgram, TheAllocatorLevelTrainsAtStocksPeakAndNotBelow) {
  const Outcome stock = run(small_ + "--level allocator --budget min --steps 2 --json -");
  ASSERT_EQ(stock.code, 0) << stock.err;
  const std::int64_t peak = stock.json()["peak_bytes"];
  EXPECT_LE(peak, stock.json()["budget_bytes"]);
  const Outcome below =
      run(small_ + "--level allocator --steps 2 --json - --budget " + std::to_string(peak - 64));
  EXPECT_EQ(below.code, 3);
  EXPECT_GE(below.json()["minimum_budget_bytes"], peak);
}

TEST_F(TrainProgram, ABudgetThatCannotWorkNamesTheLeastThatCan) {
  const Outcome outcome = run(small_ + "--budget 10KiB --steps 2 --json -");
  ASSERT_EQ(outcome.code, 3) << outcome.err;
  const std::int64_t minimum = outcome.json()["minimum_budget_bytes"];
  EXPECT_NE(outcome.json()["pinned_by"], "");
  EXPECT_THAT(outcome.err, HasSubstr(std::to_string(minimum)));
  EXPECT_EQ(run(small_ + "--steps 3 --budget " + std::to_string(minimum)).code, 0);
}

TEST_F(TrainProgram, TheLeastBudgetIsFound) {
  const Outcome outcome = run(small_ + "--budget min --steps 3 --against-stock --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["identical"], true);
}

TEST_F(TrainProgram, SaveAndResumeGoOnBitForBit) {
  const std::string file = (folder_ / "run").string();
  const Outcome whole = run(small_ + "--steps 6 --json -");
  ASSERT_EQ(run(small_ + "--steps 3 --budget 80% --save " + file).code, 0);
  const Outcome rest = run(small_ + "--steps 3 --json - --resume " + file);
  ASSERT_EQ(rest.code, 0) << rest.err;
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(rest.json()["losses"][i], whole.json()["losses"][i + 3]);
  const Outcome other = run("train mlp:image=8 --resume " + file);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("--resume"), HasSubstr("resnet:")));
}

TEST_F(TrainProgram, WritesAReportAndATraceThatStandAlone) {
  const std::string page = (folder_ / "page.html").string();
  const std::string trace = (folder_ / "trace.json").string();
  const Outcome outcome =
      run(small_ + "--steps 3 --budget 80% --against-stock --report " + page + " --trace " + trace);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(read("page.html"),
              AllOf(HasSubstr("<svg"), HasSubstr("polyline"), ::testing::Not(HasSubstr("http"))));
  const Json events = Json::parse(read("trace.json"))["traceEvents"];
  EXPECT_GT(events.size(), 20U);
}

TEST_F(TrainProgram, BadInputIsOneClearErrorBeforeAnyWork) {
  expect_refusal("train resnet5", "the nearest is 'resnet50'");
  expect_refusal("train resnet50:imag=3", "the nearest is 'image'");
  expect_refusal(small_ + "--budget 0", "--budget");
  expect_refusal(small_ + "--budget=-1", "--budget");
  expect_refusal(small_ + "--budget 9e99GiB", "--budget");
  expect_refusal(small_ + "--budget 5Gigs", "--budget");
  expect_refusal(small_ + "--level planned", "there are auto, allocator and eager");
  expect_refusal(small_ + "--level eagre", "the nearest is 'eager'");
  expect_refusal(small_ + "--policy superneurons", "comes later");
  expect_refusal(small_ + "--optimizer sdg", "the nearest is 'sgd'");
  expect_refusal(small_ + "--autocast fp16", "must be bf16");
  expect_refusal(small_ + "--batch 0", "--batch");
  expect_refusal(small_ + "--steps -3", "--steps");
  expect_refusal(small_ + "--data /no/such/folder", "/no/such/folder");
  expect_refusal(small_ + "--save /no/such/folder/run", "--save");
  expect_refusal(small_ + "--report /no/such/folder/a.html", "--report");
  expect_refusal(small_ + "--budget 50% --trace /no/such/folder/a.json", "--trace");
  expect_refusal(small_ + "--spill /no/such/folder", "--spill");
  expect_refusal(small_ + "--resume /no/such/file", "/no/such/file");
  expect_refusal("train gpt:layers=1,dim=8,heads=2,seq=4,classes=16 --data fashion-mnist",
                 "--data");
}

TEST_F(TrainProgram, ATruncatedDataFileNamesFileByteAndExpectation) {
  std::ofstream(folder_ / "train-images-idx3-ubyte", std::ios::binary)
      << std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03\x01\x02", 18);
  std::ofstream(folder_ / "train-labels-idx1-ubyte", std::ios::binary)
      << std::string("\0\0\x08\x01\0\0\0\x02\x04\x01", 10);
  const Outcome outcome = run(small_ + "--data " + folder_.string());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("byte 18"),
                                 HasSubstr("expected 10 bytes more")));
}

TEST_F(TrainProgram, CtrlCEndsCleanlyAndLeavesNoHalfFiles) {
  const std::string file = (folder_ / "run").string();
  const Outcome outcome = run("train mlp --steps 100000000 --save " + file, "timeout -s INT 3");
  // `timeout` answers 124 where it had to send the signal, unless asked to keep the status.
  const Outcome kept =
      run("train mlp --steps 100000000 --save " + file, "timeout --preserve-status -s INT 3");
  EXPECT_EQ(outcome.code, 124);
  EXPECT_EQ(kept.code, 130);
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("out", "err"));
}

TEST_F(TrainProgram, ModelsListsKeysDefaultsAndParameters) {
  const Outcome outcome = run("models resnet50 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json model = outcome.json()["models"][0];
  EXPECT_EQ(model["parameters"], 25557032);
  EXPECT_EQ(model["keys"][0]["name"], "stem");
  EXPECT_EQ(run("models resnet5").code, 2);
}

TEST_F(TrainProgram, DoctorNeverFailsForAMissingGpu) {
  const Outcome outcome = run("doctor --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const Json json = outcome.json();
  EXPECT_EQ(json["self_test"], "ok");
  for (const char* key : {"libtorch", "cuda_toolkit", "driver", "devices", "cudnn", "data"})
    EXPECT_TRUE(json.contains(key)) << key;
}

}  // namespace
}  // namespace plimsoll::cli
