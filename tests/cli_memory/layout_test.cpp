// SPDX-License-Identifier: Apache-2.0
// The command layout, as people type it.
#include <random>

#include <gmock/gmock.h>

#include "plimsoll/plan/layout_io.h"
#include "plimsoll/plan/layout_validate.h"

#include "command_run.h"
#include "placed_layout.h"

namespace plimsoll::cli {
namespace {

using testing::CommandRun;
using ::testing::HasSubstr;
using testing::read_text;
using testing::run;
using testing::scratch;
using testing::write_text;

const std::string kToy = std::string(PLIMSOLL_TEST_DATA) + "/layout/toy.csv";

TEST(LayoutCommand, GivesTheKeysOfTheContract) {
  const CommandRun result = run({"layout", kToy, "--json", "-"});
  ASSERT_EQ(result.exit_code, kDone) << result.err;
  const Json json = result.json();
  for (const char* key : {"command", "version", "buffers", "load_bytes", "arena_bytes", "status",
                          "waste_ratio", "seconds", "nodes"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["buffers"], 5);
  EXPECT_EQ(json["load_bytes"], 12);
  EXPECT_EQ(json["arena_bytes"], 12);
  EXPECT_EQ(json["status"], "optimal");
  EXPECT_EQ(json["waste_ratio"], 0.0);
}

TEST(LayoutCommand, EveryAlgorithmWritesALayoutThatIsValid) {
  for (const std::string algorithm : {"auto", "greedy", "search", "local"}) {
    for (const std::string form : {"placed.csv", "placed.json"}) {
      SCOPED_TRACE(algorithm + " " + form);
      const std::string placed = scratch(form);
      const CommandRun result =
          run({"layout", kToy, "--algorithm", algorithm, "--out", placed, "--json", "-"});
      ASSERT_EQ(result.exit_code, kDone) << result.err;
      EXPECT_EQ(result.json()["arena_bytes"], testing::read_placed(placed).top_bytes);
    }
  }
}

TEST(LayoutCommand, DrawsTimeAndAddressWithThePeak) {
  const std::string svg = scratch("layout.svg");
  ASSERT_EQ(run({"layout", kToy, "--svg", svg}).exit_code, kDone);
  EXPECT_THAT(read_text(svg), HasSubstr("load 12 bytes"));
}

TEST(LayoutCommand, ACapacityBelowTheLoadIsRefusedWithWhatWouldWork) {
  const CommandRun result = run({"layout", kToy, "--capacity", "11", "--json", "-"});
  EXPECT_EQ(result.exit_code, kInfeasible);
  EXPECT_EQ(result.json()["minimum_budget_bytes"], 12);
  EXPECT_THAT(result.json()["pinned_by"].get<std::string>(), HasSubstr("'weights' (4 bytes)"));
  EXPECT_EQ(run({"layout", kToy, "--capacity", "12"}).exit_code, kDone);
}

// Cuts a rectangle of time x addresses into pieces, at random: a layout without waste exists, and
// is hard to find again.
std::string jigsaw(std::size_t pieces) {
  struct Piece {
    std::uint64_t begin, end, bytes;
  };
  std::mt19937_64 random(7);
  std::vector<Piece> cut = {{0, 400, 1'000'000}};
  while (cut.size() < pieces) {
    Piece& piece = cut[random() % cut.size()];
    const bool cuts_time = random() % 2 == 0;
    const std::uint64_t length = cuts_time ? piece.end - piece.begin : piece.bytes;
    if (length < 8) continue;
    const std::uint64_t part = length / 4 + random() % (length / 2);
    Piece rest = piece;
    if (cuts_time) {
      rest.begin = piece.end = piece.begin + part;
    } else {
      rest.bytes = piece.bytes - part;
      piece.bytes = part;
    }
    cut.push_back(rest);
  }
  std::string text = "id,lower,upper,size\n";
  for (const Piece& piece : cut)
    text += std::to_string(&piece - cut.data()) + "," + std::to_string(piece.begin) + "," +
            std::to_string(piece.end) + "," + std::to_string(piece.bytes) + "\n";
  return text;
}

TEST(LayoutCommand, ALimitIsUnknownAndNeverInfeasible) {
  const std::string text = jigsaw(600);
  const std::string file = write_text("hard.csv", text);
  const Json open = run({"layout", file, "--time-limit", "0", "--json", "-"}).json();
  const auto load = open["load_bytes"].get<std::int64_t>();
  ASSERT_GT(open["arena_bytes"].get<std::int64_t>(), load);
  EXPECT_EQ(open["status"], "feasible");
  const CommandRun tight =
      run({"layout", file, "--time-limit", "0", "--capacity", std::to_string(load), "--json", "-"});
  EXPECT_EQ(tight.exit_code, kCheckFailed);
  EXPECT_EQ(tight.json()["status"], "unknown");
  const Json nodes = run({"layout", file, "--node-limit", "10", "--json", "-"}).json();
  EXPECT_EQ(nodes["node_limit_reached"], true);
}

TEST(LayoutCommand, AlignsSizesAndOffsets) {
  EXPECT_EQ(run({"layout", kToy, "--align", "512", "--json", "-"}).json()["arena_bytes"], 3 * 512);
}

TEST(LayoutCommand, ReadsInclusiveEndsFixedOffsetsAndGaps) {
  // `end` is the last moment of life; b is away while c lives; d must stand at 100.
  const std::string file = write_text("columns.csv",
                                      "buffer_id,start,end,size,gaps,offset\n"
                                      "b,0,9,10,3-5,\n"
                                      "c,3,5,10,,\n"
                                      "d,0,9,1,,100\n");
  const Json json = run({"layout", file, "--json", "-"}).json();
  EXPECT_EQ(json["arena_bytes"], 101);
  EXPECT_EQ(json["load_bytes"], 11);
}

TEST(LayoutCommand, BadUsageIsOneLineThatNamesFlagAndValue) {
  const auto refused = [](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "layout");
    const CommandRun result = run(words);
    EXPECT_EQ(result.exit_code, kBadUsage) << part;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  refused({kToy, "--algorithm", "magic"}, "--algorithm: 'magic'");
  refused({kToy, "--time-limit", "-1"}, "--time-limit");
  refused({kToy, "--node-limit", "-1"}, "--node-limit");
  refused({kToy, "--capacity", "0"}, "--capacity");
  refused({kToy, "--capacity", "-4"}, "--capacity");
  refused({kToy, "--capacity", "4 parsecs"}, "--capacity");
  refused({kToy, "--align", "0"}, "--align");
  refused({kToy, "--out", "/nowhere/placed.csv"}, "--out");
  refused({kToy, "--svg", "/nowhere/layout.svg"}, "--svg");
  refused({"/nowhere.csv"}, "/nowhere.csv");
  refused({PLIMSOLL_TEST_DATA}, PLIMSOLL_TEST_DATA);
  refused({write_text("bad.csv", "id,lower,upper,size\na,0,1,x\n")}, "line 2");
  refused({write_text("bad.json", R"({"buffers": [{"id": "a"}]})")}, "buffers[0]");
  refused({write_text("empty.csv", "")}, "empty");
  refused({}, "FILE");
}

}  // namespace
}  // namespace plimsoll::cli
