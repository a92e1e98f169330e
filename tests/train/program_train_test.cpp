// SPDX-License-Identifier: Apache-2.0
#include "train_program.h"

namespace plimsoll::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(TrainProgram, AFullHostTierIsOutOfMemoryNotATooSmallBudget) {
  const Outcome outcome = run(small_ + "--budget 60% --host-limit 16KiB --steps 3 --json -");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("outside of the budget"));
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("limit 0"))) << "figures that are none";
  const Outcome spilled = run(
      small_ + "--budget 60% --host-limit 16KiB --steps 3 --json - --spill " + folder_.string());
  EXPECT_EQ(spilled.code, 0) << spilled.err;
  EXPECT_GT(spilled.json()["file_bytes"], 0);
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

TEST_F(TrainProgram, AFullHostTierDuringEvaluationIsOutOfMemoryToo) {
  // After the first step there is momentum, so that evaluating needs more than that step did. An
  // eighth on top of its peak leaves room for gaps between blocks.
  const std::string mlp = "train mlp:layers=1,dim=64,image=16 --batch 32 --threads 1 --steps 1 ";
  const Outcome measured = run(mlp + "--budget 64MiB --json -");
  ASSERT_EQ(measured.code, 0) << measured.err;
  const std::int64_t peak = measured.json()["peak_bytes"];
  const std::string tight = mlp + "--host-limit 64 --budget " + std::to_string(peak * 9 / 8);
  const Outcome trained = run(tight);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome outcome = run(tight + " --evaluate");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("outside of the budget in aten::"),
                                 HasSubstr("the host tier is full")));
  EXPECT_TRUE(outcome.is_one_line()) << outcome.err;
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

TEST_F(TrainProgram, TheLeastBudgetIsFound) {
  const Outcome outcome = run(small_ + "--budget min --steps 3 --against-stock --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["identical"], true);
}

TEST_F(TrainProgram, SaveAndResumeGoOnBitForBit) {
  const std::string file = path("run");
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

TEST_F(TrainProgram, ResumesFromWhatCanBeReadOnlyOnce) {
  const std::string program = std::string(PLIMSOLL_PROGRAM) + " " + small_;
  ASSERT_EQ(run(small_ + "--steps 2 --save " + path("run")).code, 0);
  const Outcome file = run(small_ + "--steps 2 --json - --resume " + path("run"));
  ASSERT_EQ(file.code, 0) << file.err;
  const Outcome pipe =
      shell("cat " + path("run") + " | " + program + "--steps 2 --json - --resume /dev/stdin 2>" +
            said("err") + " >" + said("out"));
  ASSERT_EQ(pipe.code, 0) << pipe.err;
  EXPECT_EQ(pipe.json()["losses"], file.json()["losses"]);
}

TEST_F(TrainProgram, WritesAReportAndATraceThatStandAlone) {
  const std::string page = path("page.html");
  const std::string trace = path("trace.json");
  const Outcome outcome =
      run(small_ + "--steps 3 --budget 80% --against-stock --report " + page + " --trace " + trace);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(read("page.html"),
              AllOf(HasSubstr("<svg"), HasSubstr("polyline"), ::testing::Not(HasSubstr("http"))));
  const Json events = Json::parse(read("trace.json"))["traceEvents"];
  EXPECT_GT(events.size(), 20U);
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
