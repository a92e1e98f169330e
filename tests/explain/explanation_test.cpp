// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/explain/explanation.h"

#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plimsoll/base/error.h"
#include "plimsoll/explain/snapshot.h"

namespace plimsoll::explain {
namespace {

using ::testing::HasSubstr;

std::string file_of(const std::string& name) {
  std::ifstream file(PLIMSOLL_TEST_DATA "/explain/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Snapshot snapshot_of_protocol(int protocol) {
  const std::string name = "snapshot_protocol_" + std::to_string(protocol) + ".pickle";
  return read_snapshot(file_of(name), name);
}

TEST(ReadSnapshot, AllProtocolsSayTheSame) {
  const Snapshot two = snapshot_of_protocol(2);
  for (const int protocol : {3, 4, 5}) EXPECT_EQ(snapshot_of_protocol(protocol), two);
  ASSERT_EQ(two.segments.size(), 2U);
  ASSERT_EQ(two.traces.size(), 2U);
  EXPECT_EQ(two.stacks.size(), 3U);
}

TEST(ReadSnapshot, FindsWhatTheRunKnewOfItself) {
  const Snapshot snapshot = snapshot_of_protocol(4);
  const nlohmann::json expected = nlohmann::json::parse(file_of("expected.json"));
  const Explanation e = explain(snapshot);
  EXPECT_EQ(e.events, expected["events"]);
  EXPECT_EQ(e.is_truncated, expected["truncated"]);
  EXPECT_EQ(e.lives.size(), expected["blocks"]);
  EXPECT_EQ(e.peak_allocated_bytes, expected["peak_allocated_bytes"]);
  EXPECT_EQ(e.peak_reserved_bytes, expected["peak_reserved_bytes"]);
  EXPECT_EQ(e.fragmentation_bytes, e.reserved_at_peak_bytes - e.peak_allocated_bytes);
  EXPECT_GE(e.planned_arena_bytes, e.load_bytes);
  EXPECT_LT(e.planned_arena_bytes, e.peak_reserved_bytes);
}

TEST(ReadSnapshot, AMissingOrMistypedKeyIsNamedWithItsByte) {
  const auto problem = [](const std::string& bytes) -> std::string {
    try {
      read_snapshot(bytes, "s.pickle");
    } catch (const InvalidFile& error) {
      return error.what();
    }
    return "accepted";
  };
  using namespace std::string_literals;
  EXPECT_THAT(problem("\x80\x02]."s), HasSubstr("dictionary"));
  EXPECT_THAT(problem("\x80\x02}."s), HasSubstr("'segments'"));
  EXPECT_THAT(problem("\x80\x04}(\x8c\x08segmentsK\x01u."s), HasSubstr("'segments' is no list"));
  EXPECT_THAT(problem("\x80\x04}(\x8c\x08segments](}eu."s), HasSubstr("'address'"));
  EXPECT_THAT(problem("\x80\x04}(\x8c\x08segments](}eu."s), HasSubstr("byte "));
}

TEST(ReadSnapshot, SharedObjectsCannotMakeASmallFileHuge) {
  using namespace std::string_literals;
  // One trace of 200 events, and 30,000 references to it: six million events in 61 KB.
  std::string bytes = "\x80\x04}(\x8c\x08segments]\x8c\x0d"s + "device_traces](]\x94("s;
  for (int i = 0; i < 200; ++i) bytes += "}";
  bytes += "e";
  for (int i = 0; i < 30000; ++i) bytes += "h\x00"s;
  bytes += "eu.";
  EXPECT_THROW(read_snapshot(bytes, "s.pickle"), InvalidFile);
}

// A run on random addresses, its truth kept by brute force.
struct RandomRun {
  Snapshot snapshot;
  std::int64_t peak_allocated = 0;
};

RandomRun random_run(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomRun run;
  constexpr std::int64_t kBase = 1 << 20;
  std::map<std::int64_t, std::int64_t> live;  // address, bytes
  std::vector<TraceEvent> trace;
  std::int64_t next = kBase;
  const auto allocated = [&] {
    std::int64_t sum = 0;
    for (const auto& [address, bytes] : live) sum += bytes;
    return sum;
  };
  const int moves = 1 + static_cast<int>(random() % 60);
  for (int i = 0; i < moves; ++i) {
    if (live.empty() || random() % 3 != 0) {
      const std::int64_t bytes = 1 + static_cast<std::int64_t>(random() % 3000);
      live[next] = bytes;
      trace.push_back({TraceAction::kAllocate, next, bytes, 0, i, kNoStack});
      next += (bytes + 511) / 512 * 512;
    } else {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      trace.push_back({TraceAction::kFreeRequested, victim->first, victim->second, 0, i, kNoStack});
      trace.push_back({TraceAction::kFreeCompleted, victim->first, victim->second, 0, i, kNoStack});
      live.erase(victim);
    }
    run.peak_allocated = std::max(run.peak_allocated, allocated());
  }
  SnapshotSegment segment{0, kBase, next - kBase, 0, true, {}};
  for (const auto& [address, bytes] : live)
    segment.blocks.push_back(
        {address, (bytes + 511) / 512 * 512, bytes, BlockState::kAllocated, kNoStack});
  run.snapshot.segments.push_back(segment);
  run.snapshot.traces.push_back(trace);
  return run;
}

TEST(Explain, PeakAndPlanAgreeWithBruteForce) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomRun run = random_run(seed);
    const Explanation e = explain(run.snapshot);
    ASSERT_EQ(e.peak_allocated_bytes, run.peak_allocated);
    ASSERT_GE(e.planned_arena_bytes, e.load_bytes);
    for (std::size_t a = 0; a < e.lives.size(); ++a) {
      for (std::size_t b = a + 1; b < e.lives.size(); ++b) {
        if (!e.lives[a].time.overlaps(e.lives[b].time)) continue;
        const Interval x{e.planned_offsets_bytes[a], e.planned_offsets_bytes[a] + e.lives[a].bytes};
        const Interval y{e.planned_offsets_bytes[b], e.planned_offsets_bytes[b] + e.lives[b].bytes};
        ASSERT_FALSE(x.overlaps(y)) << a << " and " << b;
      }
    }
  }
}

TEST(Explain, CuttingTheTraceKeepsWhatIsKnown) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomRun run = random_run(seed);
    const Explanation whole = explain(run.snapshot);
    std::vector<TraceEvent>& trace = run.snapshot.traces[0];
    trace.erase(trace.begin(), trace.begin() + static_cast<std::ptrdiff_t>(trace.size() / 2));
    const Explanation cut = explain(run.snapshot);
    EXPECT_LE(cut.peak_allocated_bytes, whole.peak_allocated_bytes);
    // From the cut on both know the same blocks.
    EXPECT_EQ(cut.allocated_after.back(), whole.allocated_after.back());
  }
}

TEST(Explain, FreeRequestedDoesNotEndALife) {
  Snapshot snapshot;
  snapshot.traces.push_back({{TraceAction::kAllocate, 512, 100, 0, 0, kNoStack},
                             {TraceAction::kFreeRequested, 512, 100, 0, 1, kNoStack},
                             {TraceAction::kAllocate, 1024, 100, 0, 2, kNoStack},
                             {TraceAction::kFreeCompleted, 512, 100, 0, 3, kNoStack}});
  EXPECT_EQ(explain(snapshot).peak_allocated_bytes, 200);
}

TEST(Explain, ReservedFollowsSegmentsOfBothKinds) {
  Snapshot snapshot;
  snapshot.segments.push_back({0, 4096, 8192, 0, true, {}});
  snapshot.traces.push_back({{TraceAction::kSegmentAllocate, 4096, 4096, 0, 0, kNoStack},
                             {TraceAction::kSegmentMap, 8192, 4096, 0, 1, kNoStack},
                             {TraceAction::kSegmentAllocate, 65536, 1000, 0, 2, kNoStack},
                             {TraceAction::kSegmentFree, 65536, 1000, 0, 3, kNoStack}});
  const Explanation e = explain(snapshot);
  EXPECT_THAT(e.reserved_after, ::testing::ElementsAre(4096, 8192, 9192, 8192));
  EXPECT_EQ(e.peak_reserved_bytes, 9192);
}

TEST(Explain, ADeviceWithoutAnythingIsRefused) {
  EXPECT_THROW(explain(snapshot_of_protocol(4), {.device = 7}), InvalidArgument);
}

TEST(WriteSnapshot, ComesBackTheSame) {
  const Snapshot snapshot = snapshot_of_protocol(5);
  const std::string bytes = write_snapshot(snapshot);
  EXPECT_EQ(read_snapshot(bytes, "written"), snapshot);
}

TEST(WriteSnapshot, BlocksTileTheirSegment) {
  Snapshot snapshot;
  snapshot.segments.push_back(
      {0, 4096, 8192, 0, true, {{5120, 512, 500, BlockState::kAllocated, kNoStack}}});
  const Snapshot back = read_snapshot(write_snapshot(snapshot), "written");
  std::int64_t at = 4096;
  for (const SnapshotBlock& block : back.segments[0].blocks) {
    EXPECT_EQ(block.address, at);
    at += block.size_bytes;
  }
  EXPECT_EQ(at, 4096 + 8192);
  snapshot.segments[0].blocks[0].size_bytes = 1 << 20;
  EXPECT_THROW(write_snapshot(snapshot), InvalidArgument);
}

TEST(PlannedSnapshot, HoldsTheSameBlocksAtTheirPlannedPlaces) {
  const Snapshot snapshot = snapshot_of_protocol(4);
  const Explanation e = explain(snapshot);
  const Snapshot planned = read_snapshot(write_snapshot(planned_snapshot(snapshot, e)), "planned");
  const Explanation again = explain(planned, {.device = e.device});
  EXPECT_EQ(again.peak_allocated_bytes, e.peak_allocated_bytes);
  EXPECT_EQ(again.peak_reserved_bytes, e.planned_arena_bytes);
  EXPECT_FALSE(again.is_truncated);
}

TEST(ExplanationHtml, StandsAloneAndEscapesWhatTheFileSays) {
  Snapshot snapshot = snapshot_of_protocol(4);
  snapshot.stacks[0][0].function = "<script>alert(1)</script>\x01";
  const std::string html = explanation_html(snapshot, explain(snapshot), "a & b");
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("a &amp; b"));
  EXPECT_THAT(html, ::testing::Not(HasSubstr("<script")));
  EXPECT_THAT(html, ::testing::Not(HasSubstr("http")));
}

}  // namespace
}  // namespace plimsoll::explain
