// SPDX-License-Identifier: Apache-2.0
// Files that are no graphs and no certificates: one line that names file and place, exit code 2; a
// certificate whose claim is false: exit code 1. Odd but valid graphs: a right answer.
#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/graph/json.h"
#include "plimsoll/order/certificate.h"

#include "command_run.h"

namespace plimsoll::cli {
namespace {

using testing::CommandRun;
using ::testing::HasSubstr;
using testing::read_text;
using testing::run;
using testing::scratch;
using testing::write_text;

const std::string kData = PLIMSOLL_TEST_DATA;

struct BadFile {
  const char* name;
  const char* extension;
  std::string bytes;
  std::vector<std::string> says;  // beside the file's name
};

std::ostream& operator<<(std::ostream& out, const BadFile& file) { return out << file.name; }

std::string json(const std::string& storages, const std::string& values, const std::string& ops) {
  return R"({"format":"plimsoll-graph","version":1,"storages":[)" + storages + R"(],"values":[)" +
         values + R"(],"ops":[)" + ops + "]}";
}

// Two storages of 8 bytes with a value each, and these ops.
std::string json_ops(const std::string& ops) {
  return json(R"({"bytes":8},{"bytes":8})", R"({"storage":0},{"storage":1})", ops);
}

std::string json_sizes(const std::string& first, const std::string& second) {
  return json(R"({"bytes":)" + first + R"(},{"bytes":)" + second + "}",
              R"({"storage":0},{"storage":1})", "");
}

std::vector<BadFile> bad_files() {
  return {
      {"a cycle",
       ".json",
       json_ops(R"({"name":"there","operands":[0],"results":[1]},)"
                R"({"name":"back","operands":[1],"results":[0]})"),
       {"cycle", "there", "back"}},
      {"an op that needs itself",
       ".json",
       json_ops(R"({"operands":[0],"results":[0]})"),
       {"cycle"}},
      {"a negative size", ".json", json_sizes("8", "-1"), {"storages[1]"}},
      {"a size beyond 64 bits", ".json", json_sizes("8", "18446744073709551616"), {"storages[1]"}},
      {"a sum beyond 62 bits",
       ".json",
       json_sizes("4611686018427387904", "4611686018427387904"),
       {"2^62"}},
      {"a size that is no whole number", ".json", json_sizes("8", "1.5"), {"storages[1]"}},
      {"a cost that is no number", ".json", json_ops(R"({"results":[1],"cost_ns":NaN})"), {"byte"}},
      {"a cost beyond all numbers", ".json", json_ops(R"({"results":[1],"cost_ns":1e999})"), {}},
      {"a negative cost", ".json", json_ops(R"({"results":[1],"cost_ns":-1})"), {"ops[0]"}},
      {"an id twice",
       ".json",
       json(R"({"bytes":8,"id":3},{"bytes":8,"id":3})", R"({"storage":3})", ""),
       {"storages[1]"}},
      {"an operand that is not there",
       ".json",
       json_ops(R"({"operands":[9],"results":[1]})"),
       {"ops[0]", "9"}},
      {"two producers",
       ".json",
       json_ops(R"({"results":[1]},{"results":[1]})"),
       {"ops[1]", "already"}},
      {"a storage that is not there",
       ".json",
       json(R"({"bytes":8})", R"({"storage":7})", ""),
       {"values[0]", "7"}},
      {"an unknown key", ".json", json_ops(R"({"results":[1],"colour":"red"})"), {"colour"}},
      {"another version", ".json", R"({"format":"plimsoll-graph","version":2})", {"version"}},
      {"deep nesting", ".json", std::string(1'000'000, '['), {}},
      {"half a file", ".json", json_ops("").substr(0, 60), {"byte"}},
      {"nothing, as JSON", ".json", "", {}},
      {"a cycle as text",
       ".txt",
       "2 2\n8 0 0\n8 0 0\n0 1 1 0 1 there\n0 1 1 1 0 back\n",
       {"cycle", "there", "back"}},
      {"a negative size as text", ".txt", "1 0\n-8 0 0\n", {"line 2"}},
      {"an overflowing size as text", ".txt", "1 0\n99999999999999999999 0 0\n", {"line 2"}},
      {"no number as text", ".txt", "1 0\nnan 0 0\n", {"line 2"}},
      {"more promised than there is", ".txt", "4000000000 4000000000\n", {"line"}},
      {"an operand beyond the values", ".txt", "1 1\n8 1 0\n0 1 0 5 op\n", {"line 3"}},
      {"two producers as text", ".txt", "1 2\n8 0 0\n0 0 1 0 a\n0 0 1 0 b\n", {"line 4"}},
      {"nothing, as text", ".txt", "", {"line"}},
      {"nothing, as ONNX", ".onnx", "", {"byte 0"}},
      {"text, as ONNX", ".onnx", "this is no model", {"byte"}},
      {"half a model",
       ".onnx",
       read_text(kData + "/graphs/inference/darts-imagenet.onnx").substr(0, 5000),
       {"byte"}},
  };
}

class BadGraph : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadGraph, IsRefusedInOneLineWithFileAndPlace) {
  const BadFile& file = GetParam();
  const std::string path = write_text(std::string("bad") + file.extension, file.bytes);
  for (const std::string command : {"schedule", "verify"}) {
    std::vector<std::string> words = {command, path};
    if (command == "verify") words.push_back(path);
    const CommandRun result = run(words);
    EXPECT_EQ(result.exit_code, kBadUsage) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(path));
    for (const std::string& part : file.says) EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, BadGraph, ::testing::ValuesIn(bad_files()));

TEST(BadGraph, ThatIsAFolderIsRefused) {
  const std::string folder = scratch("folder.json");
  std::filesystem::create_directories(folder);
  EXPECT_EQ(run({"schedule", folder}).exit_code, kBadUsage);
}

TEST(OddGraph, WithoutOpsHasAnEmptyOrder) {
  for (const auto& [extension, bytes] :
       {std::pair<std::string, std::string>{".json", json("", "", "")}, {".txt", "0 0\n"}}) {
    const std::string path = write_text("empty" + extension, bytes);
    const std::string certificate = scratch("empty-certificate.json");
    const CommandRun result = run({"schedule", path, "--json", "-", "--certificate", certificate});
    ASSERT_EQ(result.exit_code, kDone) << result.err;
    EXPECT_EQ(result.json()["peak_bytes"], 0);
    EXPECT_EQ(result.json()["proved"], true);
    EXPECT_TRUE(result.json()["order"].empty());
    EXPECT_EQ(run({"verify", path, certificate}).exit_code, kDone);
  }
}

TEST(OddGraph, OfZeroBytesIsProved) {
  const std::string path =
      write_text("zero.json", json(R"({"bytes":0})", R"({"storage":0})", R"({"results":[0]})"));
  const CommandRun result = run({"schedule", path, "--json", "-", "--require-proof"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  EXPECT_EQ(result.json()["peak_bytes"], 0);
}

TEST(OddGraph, IsOrderedByEveryAlgorithm) {
  const std::string path = write_text("one.txt", "2 1\n8 1 0\n8 0 1\n1 1 1 0 1 only\n");
  for (const std::string algorithm : {"search", "serenity", "ilp", "greedy", "program"}) {
    const CommandRun result = run({"schedule", path, "--algorithm", algorithm, "--json", "-"});
    ASSERT_EQ(result.exit_code, kDone) << algorithm << result.err;
    EXPECT_EQ(result.json()["peak_bytes"], 8) << algorithm;
  }
}

class BadCertificate : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run({"schedule", kGraph, "--certificate", path_}).exit_code, kDone);
    text_ = read_text(path_);
  }
  CommandRun verify(const std::string& text) {
    return run({"verify", kGraph, write_text("certificate.json", text), "--json", "-"});
  }

  const std::string kGraph = kData + "/darts-cell.json";
  std::string path_ = scratch("certificate.json");
  std::string text_;
};

TEST_F(BadCertificate, ThatIsNoneIsABadFile) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string("null"),
        text_.substr(0, text_.size() / 2), std::string(100'000, '['), read_text(kGraph)}) {
    const CommandRun result = verify(text);
    EXPECT_EQ(result.exit_code, kBadUsage) << text.substr(0, 40);
    EXPECT_THAT(result.err, HasSubstr(path_));
  }
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"\"op\":", "\"op\":-7,\"x\":"},
        {"\"peak_bytes\":", "\"peak_bytes\":-"},
        {"\"peak_bytes\":", "\"peak_bytes\":99999999999999999999"},
        {"\"order\":[", "\"order\":[null,"},
        {"\"order\":[", "\"order\":[-1,"}}) {
    std::string changed = text_;
    changed.replace(changed.find(key), key.size(), value);
    EXPECT_EQ(verify(changed).exit_code, kBadUsage) << value;
  }
}

TEST_F(BadCertificate, ThatClaimsWhatIsNotSoFailsTheCheck) {
  const order::Certificate honest = order::read_certificate(text_, path_);
  std::vector<order::Certificate> lies(4, honest);
  lies[0].peak_bytes = lies[0].lower_bound_bytes = honest.peak_bytes - 1;
  lies[1].peak_bytes = honest.peak_bytes + 1;
  lies[2].order.pop_back();
  std::reverse(lies[3].order.begin(), lies[3].order.end());
  for (const order::Certificate& lie : lies) {
    const CommandRun result = verify(order::write_certificate(lie));
    EXPECT_EQ(result.exit_code, kCheckFailed);
    EXPECT_EQ(result.json()["valid"], false);
    EXPECT_FALSE(result.json()["reason"].get<std::string>().empty());
  }
  EXPECT_EQ(verify(order::write_certificate(honest)).exit_code, kDone);
}

}  // namespace
}  // namespace plimsoll::cli
