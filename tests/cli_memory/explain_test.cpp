// SPDX-License-Identifier: Apache-2.0
// The command explain, as people type it; tests/explain/viewer_test.py lets PyTorch read its files.
#include <gmock/gmock.h>

#include "plimsoll/plan/layout_io.h"
#include "plimsoll/plan/layout_validate.h"

#include "command_run.h"
#include "placed_layout.h"

namespace plimsoll::cli {
namespace {

using testing::CommandRun;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_text;
using testing::run;
using testing::scratch;
using testing::write_text;

const std::string kFolder = std::string(PLIMSOLL_TEST_DATA) + "/explain/";
const std::string kSnapshot = kFolder + "snapshot_protocol_4.pickle";

TEST(ExplainCommand, GivesTheKeysOfTheContract) {
  const CommandRun result = run({"explain", kSnapshot, "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  const Json json = result.json();
  for (const char* key : {"peak_allocated_bytes", "peak_reserved_bytes", "load_bytes",
                          "planned_arena_bytes", "fragmentation_bytes"})
    EXPECT_TRUE(json[key].is_number_integer()) << key;
  const Json expected = Json::parse(read_text(kFolder + "expected.json"));
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(json[key], value) << key;
  ASSERT_FALSE(json["top"].empty());
  std::int64_t held = 0;
  for (const Json& stack : json["top"]) {
    EXPECT_TRUE(stack["frames"].is_array());
    held += stack["bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(held, json["peak_allocated_bytes"]);  // few stacks: all are listed
  std::int64_t in_segments = 0;
  std::int64_t free = 0;
  for (const Json& segment : json["segments"]) {
    in_segments += segment["allocated_bytes"].get<std::int64_t>();
    free += segment["free_bytes"].get<std::int64_t>();
    EXPECT_LE(segment["largest_hole_bytes"], segment["free_bytes"]);
  }
  EXPECT_EQ(in_segments, json["peak_allocated_bytes"]);
  EXPECT_EQ(free, json["fragmentation_bytes"]);
  EXPECT_LE(json["load_bytes"], json["planned_arena_bytes"]);
}

TEST(ExplainCommand, AllProtocolsSayTheSame) {
  Json first = run({"explain", kFolder + "snapshot_protocol_2.pickle", "--json", "-"}).json();
  for (const char* protocol : {"3", "4", "5"}) {
    const Json other =
        run({"explain", kFolder + "snapshot_protocol_" + protocol + ".pickle", "--json", "-"})
            .json();
    EXPECT_EQ(other, first) << protocol;
  }
}

TEST(ExplainCommand, TheSavedPlanIsValidAndAsHighAsItSays) {
  const std::string csv = scratch("plan.csv");
  const CommandRun result = run({"explain", kSnapshot, "--save-plan", csv, "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  const testing::PlacedLayout placed = testing::read_placed(csv);
  EXPECT_EQ(result.json()["planned_arena_bytes"], placed.top_bytes);
  EXPECT_EQ(result.json()["load_bytes"], plan::layout_load_bytes(placed.problem, 0));
}

TEST(ExplainCommand, TheSavedSnapshotIsExplainedAgain) {
  const std::string saved = scratch("planned.pickle");
  const Json before = run({"explain", kSnapshot, "--save-snapshot", saved, "--json", "-"}).json();
  const Json after = run({"explain", saved, "--json", "-"}).json();
  EXPECT_EQ(after["peak_reserved_bytes"], before["planned_arena_bytes"]);
  EXPECT_EQ(after["peak_allocated_bytes"], before["peak_allocated_bytes"]);
  EXPECT_EQ(after["truncated"], false);
}

TEST(ExplainCommand, WritesAPageThatStandsAlone) {
  const std::string page = scratch("report.html");
  ASSERT_EQ(run({"explain", kSnapshot, "--html", page}).exit_code, kDone);
  const std::string html = read_text(page);
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
}

TEST(ExplainCommand, ListsAsManyStacksAsAskedFor) {
  EXPECT_EQ(run({"explain", kSnapshot, "--top", "1", "--json", "-"}).json()["top"].size(), 1U);
  EXPECT_EQ(run({"explain", kSnapshot, "--top", "0", "--json", "-"}).json()["top"].size(), 0U);
}

TEST(ExplainCommand, BadUsageAndBadFilesNameWhatIsWrong) {
  const auto refused = [](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "explain");
    const CommandRun result = run(words);
    EXPECT_EQ(result.exit_code, kBadUsage) << part;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  using namespace std::string_literals;
  refused({kSnapshot, "--align", "3"}, "--align: '3'");
  refused({kSnapshot, "--align", "0"}, "--align");
  refused({kSnapshot, "--device", "9"}, "device 9");
  refused({kSnapshot, "--device", "-2"}, "--device");
  refused({kSnapshot, "--top", "-1"}, "--top");
  refused({kSnapshot, "--html", "/nowhere/report.html"}, "--html");
  refused({kSnapshot, "--save-plan", "/nowhere/plan.csv"}, "--save-plan");
  refused({kSnapshot, "--save-snapshot", "/nowhere/s.pickle"}, "--save-snapshot");
  refused({"/nowhere.pickle"}, "/nowhere.pickle");
  refused({kFolder}, "folder");
  refused({write_text("empty.pickle", "")}, "empty");
  refused({write_text("code.pickle", "\x80\x04\x8c\x02os\x8c\x06system\x93."s)}, "STACK_GLOBAL");
  refused({write_text("cut.pickle", read_text(kSnapshot).substr(0, 1000))}, "byte ");
  refused({write_text("list.pickle", "\x80\x04]."s)}, "dictionary");
  refused({}, "SNAPSHOT");
}

}  // namespace
}  // namespace plimsoll::cli
