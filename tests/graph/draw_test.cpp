// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

#include "random_graph.h"

namespace plimsoll::graph {
namespace {

using ::testing::HasSubstr;

Graph awkward_names() {
  GraphBuilder builder;
  const ValueId x = builder.add_tensor(3000, ValueKind::kInput, false, "x<1>");
  const ValueId y = builder.add_tensor(1000, ValueKind::kOutput, true, "y & \"z\"");
  builder.add_op({.kind = "a<b> \"c\" \\", .operands = {x}, .results = {y}});
  return builder.build();
}

TEST(Draw, SvgNamesThePeakAndItsStep) {
  const Graph graph = awkward_names();
  const DrawnOrder drawn = {"search & co", graph.program_order()};
  const std::string svg = write_svg(graph, {&drawn, 1}, {.title = "t", .lower_bound_bytes = 3000});
  EXPECT_THAT(svg, HasSubstr("search &amp; co: peak 3.91 KiB at step 0, op 0 (a&lt;b&gt;"));
  EXPECT_THAT(svg, HasSubstr("lower bound 2.93 KiB"));
  EXPECT_THAT(svg, HasSubstr("class=\"peak\""));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
}

TEST(Draw, SvgOfALongOrderStaysSmall) {
  const Graph graph = testing::random_graph(1, {.ops = 30000});
  const DrawnOrder drawn = {"program", graph.program_order()};
  EXPECT_LT(write_svg(graph, {&drawn, 1}).size(), 200'000u);
}

TEST(Draw, HtmlListsWhatIsLiveAtThePeak) {
  const Graph graph = awkward_names();
  const DrawnOrder drawn = {"program", graph.program_order()};
  const std::string html = write_html(graph, {&drawn, 1}, {.title = "<t>"});
  EXPECT_THAT(html, HasSubstr("<td>x&lt;1&gt;</td><td>3000</td>"));
  EXPECT_THAT(html, HasSubstr("<h1>&lt;t&gt;</h1>"));
}

TEST(Draw, DotQuotesNames) {
  EXPECT_THAT(write_dot(awkward_names()), HasSubstr("a<b> \\\"c\\\" \\\\"));
}

TEST(Draw, TakesTheEmptyGraph) {
  const Graph graph;
  const DrawnOrder drawn = {"program", graph.program_order()};
  EXPECT_THAT(write_svg(graph, {&drawn, 1}), HasSubstr("before the first step"));
  EXPECT_THAT(write_html(graph, {&drawn, 1}), HasSubstr("0 ops"));
}

}  // namespace
}  // namespace plimsoll::graph
