// SPDX-License-Identifier: Apache-2.0
// The commands schedule and verify, as people type them.
#include <fstream>
#include <string>

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

const std::string kData = PLIMSOLL_TEST_DATA;
const std::string kCell = kData + "/darts-cell.json";

TEST(Schedule, GivesTheKeysOfTheContract) {
  const CommandRun result = run({"schedule", kCell, "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone);
  const Json json = result.json();
  for (const char* key : {"ops", "values", "peak_bytes", "program_peak_bytes", "lower_bound_bytes",
                          "proved", "pinned_by", "seconds", "states", "order"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["ops"], 39);
  EXPECT_EQ(json["peak_bytes"], 6 * 150528);
  EXPECT_EQ(json["order"].size(), 39u);
}

TEST(Schedule, EveryAlgorithmGivesAnOrderThatVerifies) {
  for (const std::string algorithm : {"search", "serenity", "ilp", "greedy", "program"}) {
    SCOPED_TRACE(algorithm);
    const std::string certificate = scratch("certificate.json");
    ASSERT_EQ(
        run({"schedule", kCell, "--algorithm", algorithm, "--certificate", certificate}).exit_code,
        kDone);
    const CommandRun verdict = run({"verify", kCell, certificate, "--json", "-"});
    EXPECT_EQ(verdict.exit_code, kDone) << verdict.out;
    EXPECT_EQ(verdict.json()["valid"], true);
    EXPECT_GE(verdict.json()["peak_bytes"], 6 * 150528);
  }
}

TEST(Schedule, RewritesTheDartsCellTo753Kilobytes) {
  const std::string graph = scratch("graph.json");
  const std::string certificate = scratch("rewritten.json");
  const CommandRun result = run({"schedule", kCell, "--rewrite", "--graph-out", graph,
                                 "--certificate", certificate, "--require-proof", "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone);
  EXPECT_EQ(result.json()["peak_before_rewrite_bytes"], 903168);
  EXPECT_EQ(result.json()["peak_bytes"], 752640);
  EXPECT_EQ(run({"verify", graph, certificate}).exit_code, kDone);
  // It is a certificate for the rewritten graph alone.
  const CommandRun other = run({"verify", kCell, certificate});
  EXPECT_EQ(other.exit_code, kCheckFailed);
  EXPECT_THAT(other.out, HasSubstr("another graph"));
}

TEST(Schedule, SaysHowManyVariablesTheIntegerProgramHas) {
  const std::string graph = kData + "/graphs/training/x-resnet18-1.txt";
  EXPECT_THAT(run({"schedule", graph, "--algorithm", "ilp"}).out, HasSubstr("after pruning"));
  const Json json = run({"schedule", graph, "--algorithm", "ilp", "--json", "-"}).json();
  EXPECT_GT(json["ilp_variables"], json["ilp_variables_pruned"]);
  EXPECT_GT(json["ilp_variables_pruned"], 0);
}

TEST(Schedule, OrdersAHandMadeModelWithEveryFeature) {
  const CommandRun result = run({"schedule", kData + "/every-feature.onnx", "--dim", "batch=2",
                                 "--require-proof", "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  EXPECT_LT(result.json()["peak_bytes"], result.json()["program_peak_bytes"]);
}

TEST(Schedule, WritesItsPictures) {
  const std::string svg = scratch("o.svg");
  const std::string html = scratch("o.html");
  const std::string dot = scratch("o.dot");
  const std::string order = scratch("o.txt");
  ASSERT_EQ(run({"schedule", kCell, "--svg", svg, "--html", html, "--dot", dot, "--order-out",
                 order, "--budget", "1MiB"})
                .exit_code,
            kDone);
  EXPECT_THAT(read_text(svg), HasSubstr("program order: peak"));
  EXPECT_THAT(read_text(html), HasSubstr("Live at the peak"));
  EXPECT_THAT(read_text(dot), HasSubstr("digraph"));
  EXPECT_THAT(read_text(order), HasSubstr("Relu\n"));
}

TEST(Schedule, RefusesABudgetBelowTheOptimumWithWhatWouldWork) {
  const CommandRun result = run({"schedule", kCell, "--budget", "800000", "--json", "-"});
  EXPECT_EQ(result.exit_code, kInfeasible);
  EXPECT_EQ(result.json()["minimum_budget_bytes"], 903168);
  EXPECT_THAT(result.err, HasSubstr("903168 bytes needed"));
}

TEST(Schedule, RequiringAProofFailsWithoutOne) {
  EXPECT_EQ(run({"schedule", kData + "/graphs/inference/nasnet-cifar.txt", "--algorithm", "program",
                 "--require-proof"})
                .exit_code,
            kCheckFailed);
}

TEST(Schedule, GivesAnOrderAtATimeLimitOfZero) {
  const CommandRun result = run({"schedule", kCell, "--time-limit", "0", "--json", "-"});
  EXPECT_EQ(result.exit_code, kDone);
  EXPECT_EQ(result.json()["order"].size(), 39u);
}

TEST(Schedule, NamesTheFlagAndValueOfBadUsage) {
  EXPECT_THAT(run({"schedule", kCell, "--algorithm", "magic"}).err, HasSubstr("'magic'"));
  EXPECT_THAT(run({"schedule", kCell, "--no-fusion", "magic"}).err, HasSubstr("--no-fusion"));
  EXPECT_THAT(run({"schedule", kCell, "--time-limit", "-1"}).err, HasSubstr("--time-limit"));
  EXPECT_THAT(run({"schedule", kCell, "--budget", "0"}).err, HasSubstr("--budget"));
  EXPECT_THAT(run({"schedule", kCell, "--dim", "batch"}).err, HasSubstr("--dim"));
  EXPECT_THAT(run({"schedule", kCell, "--svg", "/nowhere/o.svg"}).err, HasSubstr("--svg"));
  for (const std::string file : {"/nowhere.json", "/nowhere.txt", "/nowhere.onnx", "/nowhere.png"})
    EXPECT_EQ(run({"schedule", file}).exit_code, kBadUsage);
  EXPECT_EQ(run({"verify", kCell, "/nowhere.json"}).exit_code, kBadUsage);
  EXPECT_EQ(run({"schedule"}).exit_code, kBadUsage);
}

TEST(Verify, RefusesAChangedCertificate) {
  const std::string certificate = scratch("changed.json");
  ASSERT_EQ(run({"schedule", kCell, "--certificate", certificate}).exit_code, kDone);
  std::string text = read_text(certificate);
  text.replace(text.find("903168"), 6, "903167");
  std::ofstream(certificate) << text;
  const CommandRun result = run({"verify", kCell, certificate});
  EXPECT_NE(result.exit_code, kDone);
  EXPECT_THAT(result.err, HasSubstr("checksum"));
}

}  // namespace
}  // namespace plimsoll::cli
