// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_io.h"

#include "random_problem.h"

namespace plimsoll::plan {
namespace {

using ::testing::HasSubstr;

std::string csv_error(std::string_view text) {
  try {
    parse_layout_csv(text, "f.csv");
  } catch (const InvalidFile& error) {
    return error.what();
  }
  return "";
}

std::string json_error(std::string_view text) {
  try {
    parse_layout_json(text, "f.json");
  } catch (const InvalidFile& error) {
    return error.what();
  }
  return "";
}

void expect_equal(const LayoutProblem& a, const LayoutProblem& b) {
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[i].lifetime, b.buffers[i].lifetime);
    EXPECT_EQ(a.buffers[i].size_bytes, b.buffers[i].size_bytes);
    EXPECT_EQ(a.buffers[i].alignment_bytes, b.buffers[i].alignment_bytes);
    EXPECT_EQ(a.buffers[i].fixed_offset_bytes, b.buffers[i].fixed_offset_bytes);
    EXPECT_EQ(a.buffers[i].hint_offset_bytes, b.buffers[i].hint_offset_bytes);
    EXPECT_EQ(a.buffers[i].arena, b.buffers[i].arena);
    ASSERT_EQ(a.buffers[i].gaps.size(), b.buffers[i].gaps.size());
    for (std::size_t g = 0; g < a.buffers[i].gaps.size(); ++g) {
      EXPECT_EQ(a.buffers[i].gaps[g].time, b.buffers[i].gaps[g].time);
      EXPECT_EQ(a.buffers[i].gaps[g].kept, b.buffers[i].gaps[g].kept);
    }
  }
}

TEST(LayoutCsv, ReadsColumnsInAnyOrder) {
  const LayoutProblem problem = parse_layout_csv(
      "size,gaps,upper,id,lower,alignment,hint,offset,arena\r\n"
      "8,3-5 6-7@2:4,9,w,1,4,,16,1\n\n"
      "2,,4,x,-3,1,-1,-1,0\n",
      "f.csv");
  ASSERT_EQ(problem.buffers.size(), 2U);
  const LayoutBuffer& w = problem.buffers[0];
  EXPECT_EQ(problem.names[0], "w");
  EXPECT_EQ(w.lifetime, (Interval{1, 9}));
  EXPECT_EQ(w.fixed_offset_bytes, 16);
  EXPECT_EQ(w.alignment_bytes, 4);
  EXPECT_EQ(w.arena, 1);
  ASSERT_EQ(w.gaps.size(), 2U);
  EXPECT_TRUE(w.gaps[0].kept.empty());
  EXPECT_EQ(w.gaps[1].kept, (Interval{2, 4}));
  EXPECT_EQ(problem.buffers[1].lifetime, (Interval{-3, 4}));
  EXPECT_EQ(problem.buffers[1].fixed_offset_bytes, kNoOffset);
  EXPECT_EQ(problem.arenas.size(), 2U);
}

TEST(LayoutCsv, AnEndColumnIsInclusive) {
  const LayoutProblem problem =
      parse_layout_csv("buffer_id,start,end,size,gaps\na,0,3,1,1-2\n", "f.csv");
  EXPECT_EQ(problem.buffers[0].lifetime, (Interval{0, 4}));
  EXPECT_EQ(problem.buffers[0].gaps[0].time, (Interval{1, 3}));
}

TEST(LayoutCsv, BadInputIsNamedByLineAndValue) {
  EXPECT_THAT(csv_error(""), HasSubstr("empty"));
  EXPECT_THAT(csv_error("id,lower,size\n"), HasSubstr("'upper' is missing"));
  EXPECT_THAT(csv_error("id,lower,upper,size,colour\n"), HasSubstr("'colour' is unknown"));
  EXPECT_THAT(csv_error("id,lower,start,upper,size\n"), HasSubstr("'lower' stands twice"));
  const std::string head = "id,lower,upper,size,alignment,offset,gaps\n";
  EXPECT_THAT(csv_error(head + "a,0,1,2,1,0,\nb,0,1\n"), HasSubstr("line 3"));
  EXPECT_THAT(csv_error(head + "a,zero,1,2,1,0,\n"), HasSubstr("lower 'zero' is no integer"));
  EXPECT_THAT(csv_error(head + "a,0,1,,1,0,\n"), HasSubstr("size '' is no integer"));
  EXPECT_THAT(csv_error(head + "a,0,1,99999999999999999999,1,0,\n"), HasSubstr("leaves 64 bits"));
  EXPECT_THAT(csv_error(head + "a,0,1,-4,1,0,\n"), HasSubstr("size -4 has to be 0 or more"));
  EXPECT_THAT(csv_error(head + "a,3,1,4,1,0,\n"), HasSubstr("upper 1 has to be at least lower 3"));
  EXPECT_THAT(csv_error(head + "a,0,1,4,0,0,\n"), HasSubstr("alignment 0"));
  EXPECT_THAT(csv_error(head + "a,0,1,4,4,6,\n"), HasSubstr("offset 6"));
  EXPECT_THAT(csv_error(head + "a,0,9,4,1,0,3:5\n"), HasSubstr("gap '3:5'"));
  EXPECT_THAT(csv_error(head + "a,0,9,4,1,0,3-50\n"), HasSubstr("gap [3, 50)"));
  EXPECT_THAT(csv_error(head + "a,0,9223372036854775807,4611686018427387904,1,0,\n" +
                        "b,0,1,4611686018427387904,1,0,\n"),
              HasSubstr("64 bits"));
}

TEST(LayoutJson, BadInputIsNamedByPathAndValue) {
  EXPECT_THAT(json_error("{"), HasSubstr("byte"));
  EXPECT_THAT(json_error("[]"), HasSubstr("object"));
  EXPECT_THAT(json_error("{}"), HasSubstr("buffers"));
  EXPECT_THAT(json_error(R"({"buffers":[{"id":"a","lower":0,"upper":1}]})"),
              HasSubstr("'size' is missing"));
  EXPECT_THAT(json_error(R"({"buffers":[{"id":"a","lower":0,"upper":1,"size":1.5}]})"),
              HasSubstr("buffers[0].size"));
  EXPECT_THAT(
      json_error(R"({"buffers":[{"id":"a","lower":0,"upper":1,"size":18446744073709551615}]})"),
      HasSubstr("64 bits"));
  EXPECT_THAT(json_error(R"({"buffers":[{"id":"a","lower":0,"upper":1,"size":1,"colour":2}]})"),
              HasSubstr("'colour' is unknown"));
  EXPECT_THAT(json_error(R"({"buffers":[],"arenas":[{"capacity":-2}]})"), HasSubstr("capacity -2"));
  EXPECT_THAT(json_error(std::string(200, '[')), HasSubstr("nested"));
}

TEST(LayoutIo, WhatIsWrittenReadsBack) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    LayoutProblem problem = testing::random_problem(seed, {.with_alignment = true,
                                                           .with_gaps = true,
                                                           .with_windows = seed % 2 == 0,
                                                           .with_fixed = true});
    if (seed % 3 == 0) {
      problem.buffers[0].arena = 1;
      problem.buffers[0].hint_offset_bytes = 7;
      problem.arenas.resize(2);
    }
    expect_equal(problem, parse_layout_csv(write_layout_csv(problem, nullptr), "f.csv"));
    problem.arenas[0].capacity_bytes = 99;
    problem.reserved.push_back({0, {1, 2}, {50, 60}});
    const LayoutProblem json = parse_layout_json(write_layout_json(problem, nullptr), "f.json");
    expect_equal(problem, json);
    EXPECT_EQ(json.arenas[0].capacity_bytes, 99);
    EXPECT_EQ(json.reserved[0].addresses, (Interval{50, 60}));
  }
}

TEST(LayoutIo, AWrittenLayoutIsASolvedProblem) {
  const LayoutProblem problem = read_layout(std::string(PLIMSOLL_TEST_DATA) + "/layout/toy.csv");
  const LayoutResult result = solve_layout(problem);
  EXPECT_EQ(result.arena_bytes(), 12);
  const LayoutProblem placed =
      parse_layout_csv(write_layout_csv(problem, &result.offsets_bytes), "f.csv");
  const LayoutResult again = solve_layout(placed);
  EXPECT_EQ(again.offsets_bytes, result.offsets_bytes);
  EXPECT_EQ(again.status, LayoutStatus::kOptimal);
}

TEST(LayoutIo, AMissingFileOrAFolderIsNamed) {
  EXPECT_THROW(read_layout("/no/such/file.csv"), InvalidFile);
  EXPECT_THROW(read_layout("/"), InvalidFile);
}

// Flips, cuts, repeats and inserts bytes.
std::string mutated(std::string text, std::mt19937_64& random) {
  const auto changes = 1 + random() % 6;
  for (std::uint64_t c = 0; c < changes && !text.empty(); ++c) {
    const std::size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 20));
        break;
      case 3:
        text.insert(at, "-,9223372036854775807\n:@\"{}[]" + random() % 25, 1 + random() % 3);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(LayoutIo, MutatedFilesAreReadOrRefusedButNeverCrash) {
  std::mt19937_64 random(2026);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const LayoutProblem problem = testing::random_problem(
        static_cast<std::uint64_t>(round % 50),
        {.with_alignment = true, .with_gaps = true, .with_windows = true, .with_fixed = true});
    const bool is_json = round % 2 == 0;
    const std::string text = mutated(
        is_json ? write_layout_json(problem, nullptr) : write_layout_csv(problem, nullptr), random);
    try {
      const LayoutProblem read =
          is_json ? parse_layout_json(text, "f") : parse_layout_csv(text, "f");
      check_layout_problem(read);
      LayoutOptions quick;
      quick.node_limit = 200;
      quick.local_limit = 2;
      if (round % 10 == 0) solve_layout(read, quick);
    } catch (const InvalidFile&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

TEST(LayoutPicture, ShowsEveryBufferAndThePeak) {
  const LayoutProblem problem = read_layout(std::string(PLIMSOLL_TEST_DATA) + "/layout/toy.csv");
  const LayoutResult result = solve_layout(problem);
  const std::string svg = draw_layout_svg(problem, result.offsets_bytes);
  for (const std::string& name : problem.names) EXPECT_THAT(svg, HasSubstr(name + ": 4 bytes at"));
  EXPECT_THAT(svg, HasSubstr("load 12 bytes at time 0"));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg"));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  const LayoutPeak peak = find_layout_peak(problem, 0);
  EXPECT_EQ(peak.load_bytes, 12);
  EXPECT_THAT(peak.buffers, ::testing::ElementsAre(0, 2, 4));
}

}  // namespace
}  // namespace plimsoll::plan
