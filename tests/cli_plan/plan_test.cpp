// SPDX-License-Identifier: Apache-2.0
// The commands plan and superneurons, as people type them.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_run.h"

namespace plimsoll::cli {
namespace {

using testing::CommandRun;
using ::testing::HasSubstr;
using testing::read_text;
using testing::run;
using testing::scratch;
using testing::write_text;

const std::string kTraining = std::string(PLIMSOLL_TEST_DATA) + "/graphs/training/";
const std::string kUnet = kTraining + "t-unet.txt";
// A device whose figures are all there; the tests break one at a time.
const std::string kDevice =
    R"({"name":"small","memory_bytes":1e9,"flops_per_second":1e12,"bytes_per_second":1e11,)"
    R"("launch_ns":0,"copy_out_bytes_per_second":1e9,"copy_in_bytes_per_second":1e9,)"
    R"("copy_latency_ns":0,"host_bytes":1e9)";

Json read_json(const std::string& path) { return Json::parse(read_text(path)); }

TEST(Plan, GivesTheKeysOfTheContract) {
  const CommandRun result = run({"plan", kUnet, "--budget", "60%", "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  const Json json = result.json();
  for (const char* key :
       {"budget_bytes", "peak_bytes", "arena_bytes", "lower_bound_bytes", "minimum_budget_bytes",
        "pinned_by", "predicted_seconds", "stock_predicted_seconds", "time_lower_bound_seconds",
        "offloaded_bytes", "recomputed_ops", "workspace_bytes", "steps"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["peak_bytes"], json["arena_bytes"]);
  EXPECT_LE(json["live_bytes"], json["peak_bytes"]);
  EXPECT_LE(json["arena_bytes"], json["budget_bytes"]);
  EXPECT_LE(json["lower_bound_bytes"], json["minimum_budget_bytes"]);
  EXPECT_GE(json["predicted_seconds"], json["time_lower_bound_seconds"]);
}

// A file without costs: they are modelled, and the output says so.
TEST(Plan, SaysWhereItsCostsComeFrom) {
  const CommandRun result = run({"plan", kUnet, "--json", "-"});
  EXPECT_EQ(result.json()["costs"], "modelled");
  EXPECT_EQ(run({"plan", kUnet, "--measured", "--json", "-"}).json()["costs"], "modelled");
  EXPECT_THAT(run({"plan", kUnet}).out, HasSubstr("costs modelled"));
}

TEST(Plan, ABudgetBelowTheMinimumIsThreeWithMinimumOpAndBytes) {
  const CommandRun result = run({"plan", kUnet, "--budget", "1KiB", "--json", "-"});
  EXPECT_EQ(result.exit_code, 3);
  const Json json = result.json();
  const auto least = json["minimum_budget_bytes"].get<std::int64_t>();
  EXPECT_GT(least, 1024);
  EXPECT_THAT(json["pinned_by"].get<std::string>(), HasSubstr("op "));
  EXPECT_THAT(result.err, HasSubstr("1024 bytes asked"));
  EXPECT_THAT(result.err, HasSubstr(std::to_string(least)));
  EXPECT_EQ(run({"plan", kUnet, "--budget", std::to_string(least)}).exit_code, kDone);
  EXPECT_EQ(run({"plan", kUnet, "--budget", std::to_string(least - 1)}).exit_code, 3);
  EXPECT_EQ(run({"plan", kUnet, "--budget", "min", "--json", "-"}).json()["budget_bytes"], least);
}

TEST(Plan, BadWordsAreTwoAndNameFlagAndValue) {
  const auto expect_bad = [](std::vector<std::string> words, const std::string& said) {
    words.insert(words.begin(), "plan");
    const CommandRun result = run(words);
    EXPECT_EQ(result.exit_code, 2) << said;
    EXPECT_THAT(result.err, HasSubstr(said));
  };
  expect_bad({kUnet, "--budget", "0"}, "--budget");
  expect_bad({kUnet, "--budget", "12 parsecs"}, "12 parsecs");
  expect_bad({kUnet, "--policy", "best"}, "--policy best");
  expect_bad({kUnet, "--device", "abacus"}, "--device abacus");
  expect_bad({kUnet, "--device", "no-such-file.json"}, "no-such-file.json");
  expect_bad({kUnet, "--workspace-cap", "-1"}, "--workspace-cap");
  expect_bad({kUnet, "--policy", "optimal"}, "--policy optimal");
  expect_bad({"resnet51"}, "resnet51");
  expect_bad({"resnet50", "--batch", "0"}, "batch");
  expect_bad({"resnet50", "--step-model", "guess"}, "--step-model guess");
  expect_bad({"no-such-step.txt"}, "no-such-step.txt");
  expect_bad({kUnet, "--out", "/no/such/folder/p.json"}, "/no/such/folder/p.json");
}

TEST(Plan, DeviceFilesAreReadAndRefusedByKey) {
  const std::string good = write_text("good.json", kDevice + "}");
  const CommandRun result = run({"plan", kUnet, "--device", good, "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  EXPECT_EQ(result.json()["device"], "small");
  const auto refused = [](const std::string& text, const std::string& key) {
    const CommandRun bad = run({"plan", kUnet, "--device", write_text("bad.json", text)});
    EXPECT_EQ(bad.exit_code, 2) << text;
    EXPECT_THAT(bad.err, HasSubstr(key));
  };
  refused(R"({"name":"x","memory_bytes":1e9})", "flops_per_second");
  refused(kDevice + R"(,"flops_efficiency":7})", "flops_efficiency");
  refused(kDevice + R"(,"alignment_bytes":-512})", "alignment_bytes");
  refused(kDevice + R"(,"file_latency_ns":"slow"})", "file_latency_ns");
  refused(kDevice + R"(,"warp_speed":9})", "warp_speed");
  refused(kDevice, "bad.json");
}

TEST(Plan, EveryTrainingStepOfTheDataPlansAtHalfOfWhatCanMove) {
  int planned = 0;
  for (const char* name : {"t-resnet50", "t-unet", "x-alexnet-32", "x-mobilenet_v2-1",
                           "x-resnet18-32", "x-squeezenet1_0-1"}) {
    SCOPED_TRACE(name);
    const CommandRun least =
        run({"plan", kTraining + name + ".txt", "--budget", "min", "--json", "-", "--quiet"});
    ASSERT_EQ(least.exit_code, kDone) << least.err;
    const Json json = least.json();
    const auto budget = (json["minimum_budget_bytes"].get<std::int64_t>() +
                         json["stock_peak_bytes"].get<std::int64_t>()) /
                        2;
    const CommandRun result = run({"plan", kTraining + name + ".txt", "--budget",
                                   std::to_string(budget), "--json", "-", "--quiet"});
    ASSERT_EQ(result.exit_code, kDone) << result.err;
    EXPECT_LE(result.json()["predicted_seconds"], json["predicted_seconds"]);
    ++planned;
  }
  EXPECT_EQ(planned, 6);
}

// AlexNet's dropout masks cost 1/8 as bits; packing is chosen only where it pays.
TEST(Plan, KeepsMasksAsBitsOnlyWhereThatPays) {
  const std::vector<std::string> net = {"plan", "alexnet", "--batch", "64", "--json", "-"};
  EXPECT_EQ(run(net).json()["packed_masks"], 0);
  auto bytes = net;
  bytes.insert(bytes.end(), {"--budget", "min", "--byte-masks"});
  auto bits = net;
  bits.insert(bits.end(), {"--budget", "min"});
  EXPECT_LE(run(bits).json()["minimum_budget_bytes"], run(bytes).json()["minimum_budget_bytes"]);
}

// Peak and arena in the output, in the plan's file and added up from the file are one number.
TEST(Plan, WritesThePlanAndItsTimeline) {
  const std::string out = scratch("plan.json");
  const std::string timeline = scratch("timeline.json");
  const CommandRun result =
      run({"plan", kUnet, "--budget", "50%", "--out", out, "--timeline", timeline, "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  const Json plan = read_json(out);
  EXPECT_EQ(plan["arena_bytes"], result.json()["arena_bytes"]);
  EXPECT_EQ(plan["arena_bytes"], result.json()["peak_bytes"]);
  std::int64_t top = 0;
  for (const Json& instance : plan["instances"]) {
    const auto bytes = (instance["size_bytes"].get<std::int64_t>() + 511) / 512 * 512;
    top = std::max(top, instance["address"].get<std::int64_t>() + bytes);
  }
  EXPECT_EQ(plan["arena_bytes"], top);
  double end = 0;
  const Json trace = read_json(timeline);
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X")
      end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  EXPECT_NEAR(end * 1e-6, result.json()["predicted_seconds"].get<double>(), 1e-9);
}

TEST(Superneurons, GivesTheKeysOfTheContractAndThePapersFigure) {
  const CommandRun result = run({"superneurons", "alexnet", "--batch", "200", "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  const Json json = result.json();
  for (const char* key : {"baseline_bytes", "liveness_bytes", "offload_bytes", "recompute_bytes",
                          "layer_peak_bytes", "extra_recomputes"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["extra_recomputes"]["speed"], 14);
  EXPECT_EQ(json["extra_recomputes"]["memory"], 23);
  EXPECT_EQ(json["extra_recomputes"]["cost_aware"], 17);
  EXPECT_EQ(run({"superneurons", "alexnet", "--batch", "-3"}).exit_code, 2);
  EXPECT_EQ(run({"superneurons", "lenet"}).exit_code, 2);
}

}  // namespace
}  // namespace plimsoll::cli
