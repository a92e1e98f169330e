// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"

namespace plimsoll::graph {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_text(text, "g.txt");
  } catch (const InvalidFile& error) {
    return error.what();
  }
  return "not refused";
}

TEST(TextReader, ReadsTheFormOfTheReadme) {
  const Graph graph = read_text("2 2\n8 1 0\n8 0 1\n1 1 1 0 1 aten.relu\n0 1 0 1\n", "g.txt");
  EXPECT_EQ(graph.op_count(), 2u);
  EXPECT_EQ(graph.kind(OpId(0)), "aten.relu");
  EXPECT_EQ(graph.inplace_operand(OpId(0)), ValueId(0));
  EXPECT_EQ(peak_bytes(graph, graph.program_order()), 8);
}

TEST(TextReader, NamesTheLineOfEveryFault) {
  EXPECT_THAT(refusal(""), HasSubstr("g.txt, line 1"));
  EXPECT_THAT(refusal("x"), HasSubstr("count of values"));
  EXPECT_THAT(refusal("1 0\n-4 1 0\n"), HasSubstr("line 2: the size in bytes is -4"));
  EXPECT_THAT(refusal("1 0\n9223372036854775808 1 0\n"), HasSubstr("64 bits"));
  EXPECT_THAT(refusal("1 0\n9223372036854775807 1 0\n"), HasSubstr("line 2: its"));
  EXPECT_THAT(refusal("1 0\nnan 1 0\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("1 0\n4 2 0\n"), HasSubstr("'live from the start' is 2"));
  EXPECT_THAT(refusal("1 0\n4 0 0\n"), HasSubstr("line 2: no op writes this value"));
  EXPECT_THAT(refusal("1 1\n4 1 0\n0 1 0 7 op\n"), HasSubstr("line 3: a value's id is 7"));
  EXPECT_THAT(refusal("1 1\n4 1 0\n0 2 0 0 op\n"), HasSubstr("line 3: a value's id is missing"));
  EXPECT_THAT(refusal("1 1\n4 1 0\n0 0 1 0 op\n"), HasSubstr("live from the start"));
  EXPECT_THAT(refusal("1 2\n4 0 0\n0 0 1 0 a\n0 0 1 0 b\n"), HasSubstr("line 4: writes value 0"));
  EXPECT_THAT(refusal("1 2\n4 0 0\n0 0 1 0 a\n"), HasSubstr("the file ends here"));
  EXPECT_THAT(refusal("2 2\n4 0 0\n4 0 0\n0 1 1 0 1 a\n0 1 1 1 0 b\n"), HasSubstr("cycle"));
  EXPECT_THAT(refusal("1 0\n4 1 0\nmore\n"), HasSubstr("line 3"));
  EXPECT_THAT(refusal("0 1\n0 4000000000 0 op\n"), HasSubstr("number of operands"));
}

struct Known {
  const char* file;
  std::int64_t program_peak_kb;
};

TEST(TextReader, GivesTheListedPeaksOfProgramOrder) {
  for (const Known& known : {Known{"x-alexnet-1", 240853},
                             {"x-vgg11-32", 2031784},
                             {"x-resnet18-1", 62601},
                             {"x-resnet50-32", 2698899},
                             {"x-mobilenet_v2-1", 83488},
                             {"x-vit_b_16-32", 4437637},
                             {"x-densenet121-1", 136807},
                             {"x-squeezenet1_0-1", 36857}}) {
    SCOPED_TRACE(known.file);
    const Graph graph =
        read_text_file(std::string(PLIMSOLL_TEST_DATA "/graphs/training/") + known.file + ".txt");
    const std::int64_t peak = peak_bytes(graph, graph.program_order());
    // The list is rounded to whole KB.
    EXPECT_EQ((peak + 512) / 1024, known.program_peak_kb) << peak;
  }
}

}  // namespace
}  // namespace plimsoll::graph
