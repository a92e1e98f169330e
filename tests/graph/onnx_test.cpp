// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/graph/onnx.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"

#include "onnx_model.h"

namespace plimsoll::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OnnxModel;
using testing::OnnxNode;

std::string refusal(const std::string& bytes, const OnnxOptions& options = {}) {
  try {
    read_onnx(bytes, "m.onnx", options);
  } catch (const InvalidFile& error) {
    return error.what();
  }
  return "not refused";
}

// The shape of the one result of one node that reads `inputs` (and constants given by name).
std::vector<std::int64_t> shape_of(const OnnxNode& node,
                                   const std::vector<std::vector<std::int64_t>>& inputs,
                                   const std::vector<std::vector<std::int64_t>>& constants = {}) {
  OnnxModel model;
  OnnxNode full = node;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    model.input("x" + std::to_string(i), inputs[i]);
    full.inputs.push_back("x" + std::to_string(i));
  }
  for (std::size_t i = 0; i < constants.size(); ++i) {
    model.constant("c" + std::to_string(i), constants[i]);
    full.inputs.push_back("c" + std::to_string(i));
  }
  full.outputs = {"y"};
  model.node(full);
  model.output("y");
  const Graph graph = read_onnx(model.bytes(), "m.onnx");
  const auto shape = graph.shape(graph.results(OpId(0))[0]);
  return {shape.begin(), shape.end()};
}

TEST(OnnxReader, GivesThePeaksOfTheTextTwins) {
  for (const std::string name :
       {"darts-imagenet", "hrnet-w18", "nasnet-cifar", "randwire1-stack-32", "randwire1-wsum-32"}) {
    SCOPED_TRACE(name);
    const std::string stem = PLIMSOLL_TEST_DATA "/graphs/inference/" + name;
    const Graph onnx = read_onnx_file(stem + ".onnx");
    const Graph text = read_text_file(stem + ".txt");
    ASSERT_EQ(onnx.op_count(), text.op_count());
    const MemoryProfile a = memory_profile(onnx, onnx.program_order());
    const MemoryProfile b = memory_profile(text, text.program_order());
    EXPECT_EQ(a.during_bytes, b.during_bytes);
    EXPECT_EQ(a.after_bytes, b.after_bytes);
    EXPECT_EQ(onnx.edge_count(), text.edge_count());
    for (std::size_t i = 0; i < onnx.op_count(); ++i)
      EXPECT_EQ(onnx.inplace_storage(OpId(i)).valid(), text.inplace_storage(OpId(i)).valid()) << i;
  }
}

TEST(OnnxReader, InfersConvolutionsAndPools) {
  EXPECT_THAT(shape_of({.kind = "Conv", .ints = {{"strides", {2, 2}}, {"pads", {3, 3, 3, 3}}}},
                       {{1, 3, 224, 224}, {64, 3, 7, 7}}),
              ElementsAre(1, 64, 112, 112));
  EXPECT_THAT(
      shape_of({.kind = "Conv", .ints = {{"dilations", {2, 2}}}, .integers = {{"group", 3}}},
               {{1, 3, 10, 10}, {6, 1, 3, 3}}),
      ElementsAre(1, 6, 6, 6));
  EXPECT_THAT(
      shape_of(
          {.kind = "Conv", .ints = {{"strides", {2, 2}}}, .strings = {{"auto_pad", "SAME_UPPER"}}},
          {{1, 3, 11, 11}, {6, 3, 3, 3}}),
      ElementsAre(1, 6, 6, 6));
  EXPECT_THAT(shape_of({.kind = "MaxPool",
                        .ints = {{"kernel_shape", {3, 3}}, {"strides", {2, 2}}},
                        .integers = {{"ceil_mode", 1}}},
                       {{1, 8, 6, 6}}),
              ElementsAre(1, 8, 3, 3));
  EXPECT_THAT(
      shape_of({.kind = "AveragePool", .ints = {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}}},
               {{1, 8, 7, 7}}),
      ElementsAre(1, 8, 3, 3));
  EXPECT_THAT(
      shape_of({.kind = "ConvTranspose",
                .ints = {{"strides", {2, 2}}, {"output_padding", {1, 1}}, {"pads", {1, 1, 1, 1}}}},
               {{1, 8, 5, 5}, {8, 4, 3, 3}}),
      ElementsAre(1, 4, 10, 10));
  EXPECT_THAT(shape_of({.kind = "GlobalAveragePool"}, {{2, 8, 7, 7}}), ElementsAre(2, 8, 1, 1));
}

TEST(OnnxReader, InfersProductsAndReductions) {
  EXPECT_THAT(shape_of({.kind = "Gemm", .integers = {{"transB", 1}}}, {{4, 5}, {6, 5}}),
              ElementsAre(4, 6));
  EXPECT_THAT(shape_of({.kind = "MatMul"}, {{7, 1, 4, 5}, {3, 5, 6}}), ElementsAre(7, 3, 4, 6));
  EXPECT_THAT(shape_of({.kind = "MatMul"}, {{5}, {3, 5, 6}}), ElementsAre(3, 6));
  EXPECT_THAT(shape_of({.kind = "Add"}, {{4, 1, 3}, {2, 1}}), ElementsAre(4, 2, 3));
  EXPECT_THAT(
      shape_of({.kind = "ReduceMean", .ints = {{"axes", {-1}}}, .integers = {{"keepdims", 0}}},
               {{2, 3, 4}}),
      ElementsAre(2, 3));
  EXPECT_THAT(shape_of({.kind = "ReduceSum"}, {{2, 3, 4}}, {{1}}), ElementsAre(2, 1, 4));
  EXPECT_THAT(shape_of({.kind = "ArgMax", .integers = {{"axis", 1}, {"keepdims", 0}}}, {{2, 3, 4}}),
              ElementsAre(2, 4));
  EXPECT_THAT(shape_of({.kind = "Softmax"}, {{2, 3}}), ElementsAre(2, 3));
}

TEST(OnnxReader, InfersMovements) {
  EXPECT_THAT(shape_of({.kind = "Concat", .integers = {{"axis", -1}}}, {{2, 3}, {2, 4}}),
              ElementsAre(2, 7));
  EXPECT_THAT(shape_of({.kind = "Reshape"}, {{2, 3, 4}}, {{0, -1}}), ElementsAre(2, 12));
  EXPECT_THAT(shape_of({.kind = "Transpose", .ints = {{"perm", {2, 0, 1}}}}, {{2, 3, 4}}),
              ElementsAre(4, 2, 3));
  EXPECT_THAT(shape_of({.kind = "Unsqueeze"}, {{2, 3}}, {{0, -1}}), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(shape_of({.kind = "Squeeze", .ints = {{"axes", {0}}}}, {{1, 2, 1}}),
              ElementsAre(2, 1));
  EXPECT_THAT(shape_of({.kind = "Flatten", .integers = {{"axis", 2}}}, {{2, 3, 4}}),
              ElementsAre(6, 4));
  EXPECT_THAT(
      shape_of({.kind = "Slice"}, {{10, 8}}, {{-3, 0}, {9223372036854775807, 5}, {0, 1}, {1, 2}}),
      ElementsAre(3, 3));
  EXPECT_THAT(shape_of({.kind = "Slice"}, {{10}}, {{-1}, {-9223372036854775807}, {0}, {-3}}),
              ElementsAre(4));
  EXPECT_THAT(shape_of({.kind = "Pad", .ints = {{"pads", {0, 1, 0, 2}}}}, {{2, 3}}),
              ElementsAre(2, 6));
  EXPECT_THAT(shape_of({.kind = "Gather", .integers = {{"axis", 1}}}, {{2, 3, 4}, {5, 6}}),
              ElementsAre(2, 5, 6, 4));
  EXPECT_THAT(shape_of({.kind = "Expand"}, {{3, 1}}, {{2, 1, 6}}), ElementsAre(2, 3, 6));
  EXPECT_THAT(shape_of({.kind = "Tile"}, {{3, 2}}, {{1, 4}}), ElementsAre(3, 8));
  EXPECT_THAT(shape_of({.kind = "DepthToSpace", .integers = {{"blocksize", 2}}}, {{1, 8, 3, 3}}),
              ElementsAre(1, 2, 6, 6));
}

TEST(OnnxReader, SplitsEvenlyAndAsTold) {
  OnnxModel model;
  model.input("x", {2, 7});
  model.constant("parts", {2, 5});
  model.node({.kind = "Split",
              .inputs = {"x", "parts"},
              .outputs = {"a", "b"},
              .integers = {{"axis", 1}}});
  model.node({.kind = "Split", .inputs = {"x"}, .outputs = {"c", "d"}, .integers = {{"axis", 1}}});
  const Graph graph = read_onnx(model.bytes(), "m.onnx");
  EXPECT_THAT(graph.shape(graph.results(OpId(0))[0]), ElementsAre(2, 2));
  EXPECT_THAT(graph.shape(graph.results(OpId(0))[1]), ElementsAre(2, 5));
  EXPECT_THAT(graph.shape(graph.results(OpId(1))[0]), ElementsAre(2, 4));
  EXPECT_THAT(graph.shape(graph.results(OpId(1))[1]), ElementsAre(2, 3));
}

TEST(OnnxReader, ResizesByScalesAndBySizes) {
  OnnxModel model;
  model.input("x", {1, 2, 5, 5});
  model.real_constant("scales", {1, 1, 1.5F, 2});
  model.constant("sizes", {1, 2, 3, 4});
  model.node({.kind = "Resize", .inputs = {"x", "", "scales"}, .outputs = {"a"}});
  model.node({.kind = "Resize", .inputs = {"x", "", "", "sizes"}, .outputs = {"b"}});
  const Graph graph = read_onnx(model.bytes(), "m.onnx");
  EXPECT_THAT(graph.shape(graph.results(OpId(0))[0]), ElementsAre(1, 2, 7, 10));
  EXPECT_THAT(graph.shape(graph.results(OpId(1))[0]), ElementsAre(1, 2, 3, 4));
}

TEST(OnnxReader, FoldsShapeArithmeticAway) {
  OnnxModel model;
  model.input("x", {6, 4, 5});
  model.constant("zero", {0});
  model.constant("minus_one", {-1});
  model.constant("two", {2});
  model.node({.kind = "Shape", .inputs = {"x"}, .outputs = {"shape"}});
  model.node({.kind = "Gather", .inputs = {"shape", "zero"}, .outputs = {"batch"}});
  model.node({.kind = "Div", .inputs = {"batch", "two"}, .outputs = {"half"}});
  model.node({.kind = "Concat",
              .inputs = {"half", "minus_one"},
              .outputs = {"target"},
              .integers = {{"axis", 0}}});
  model.node({.kind = "Reshape", .inputs = {"x", "target"}, .outputs = {"y"}});
  model.output("y");
  const Graph graph = read_onnx(model.bytes(), "m.onnx");
  ASSERT_EQ(graph.op_count(), 1u);
  EXPECT_THAT(graph.shape(graph.results(OpId(0))[0]), ElementsAre(3, 40));
  EXPECT_EQ(peak_bytes(graph, graph.program_order()), 6 * 4 * 5 * 4);
}

TEST(OnnxReader, CountsInputsAndOutputsButNoWeights) {
  OnnxModel model;
  model.input("x", {1, 8});
  model.input("w", {8, 4});  // listed as input too, as files of older versions do
  model.weight("w", {8, 4});
  model.node({.kind = "MatMul", .inputs = {"x", "w"}, .outputs = {"y"}});
  model.node({.kind = "Relu", .inputs = {"y"}, .outputs = {"z"}});
  model.output("z");
  const Graph graph = read_onnx(model.bytes(), "m.onnx");
  EXPECT_EQ(graph.value_count(), 3u);
  EXPECT_EQ(peak_bytes(graph, graph.program_order()), 8 * 4 + 4 * 4);
  EXPECT_TRUE(graph.live_at_end(graph.storage(ValueId(2))));
}

TEST(OnnxReader, TakesUnknownOpsWhoseShapesAreDeclared) {
  OnnxModel model;
  model.input("x", {4});
  model.node({.kind = "Mystery", .inputs = {"x", "stripped_weight"}, .outputs = {"y"}});
  EXPECT_THAT(refusal(model.bytes()), HasSubstr("the shape of 'y'"));
  model.declare("y", {10});
  EXPECT_EQ(read_onnx(model.bytes(), "m.onnx").size_bytes(ValueId(1)), 40);
}

TEST(OnnxReader, TakesNumbersForSymbolicExtents) {
  OnnxModel model;
  model.symbolic_input("x", "batch");
  model.node({.kind = "Relu", .inputs = {"x"}, .outputs = {"y"}});
  EXPECT_THAT(refusal(model.bytes()), HasSubstr("input 'x': has the symbolic extent 'batch'"));
  const Graph graph = read_onnx(model.bytes(), "m.onnx", {.dimensions = {{"batch", 3}}});
  EXPECT_EQ(graph.size_bytes(ValueId(0)), 12);
}

TEST(OnnxReader, ReadsShapesFromExternalDataBelowItsFolderOnly) {
  const std::string folder = ::testing::TempDir();
  {
    std::ofstream data(folder + "/weights.bin", std::ios::binary);
    const std::int64_t values[] = {99, 2, 6};
    data.write(reinterpret_cast<const char*>(values), sizeof(values));
  }
  for (const std::string location : {"weights.bin", "../weights.bin"}) {
    OnnxModel model;
    model.input("x", {3, 4});
    model.external_constant("target", 2, location, 8);
    model.node({.kind = "Reshape", .inputs = {"x", "target"}, .outputs = {"y"}});
    const std::string path = folder + "/m.onnx";
    std::ofstream(path, std::ios::binary) << model.bytes();
    if (location == "weights.bin") {
      EXPECT_THAT(read_onnx_file(path).shape(ValueId(1)), ElementsAre(2, 6));
    } else {
      EXPECT_THROW(read_onnx_file(path), InvalidFile);
    }
  }
}

TEST(OnnxReader, TakesWhatSubgraphsReadFromAroundThemAsOperands) {
  OnnxModel body;
  body.node({.kind = "Relu", .inputs = {"outer"}, .outputs = {"inner"}});
  body.output("inner");
  OnnxModel model;
  model.input("condition", {1});
  model.input("outer", {5});
  model.node({.kind = "If", .inputs = {"condition"}, .outputs = {"y"}, .graphs = {body.graph()}});
  model.declare("y", {5});
  const Graph graph = read_onnx(model.bytes(), "m.onnx");
  EXPECT_THAT(graph.operands(OpId(0)), ElementsAre(ValueId(0), ValueId(1)));
}

TEST(OnnxReader, NamesThePlaceOfEveryFault) {
  EXPECT_THAT(refusal(""), HasSubstr("m.onnx, byte 0: the model has no graph"));
  EXPECT_THAT(refusal("hello world"), HasSubstr("m.onnx, byte"));
  OnnxModel twice;
  twice.input("x", {1});
  twice.node({.kind = "Relu", .inputs = {"x"}, .outputs = {"y"}});
  twice.node({.kind = "Relu", .inputs = {"x"}, .outputs = {"y"}});
  EXPECT_THAT(refusal(twice.bytes()), HasSubstr("node 1 '' (Relu): writes 'y'"));
  OnnxModel cycle;
  cycle.node({.kind = "Relu", .inputs = {"b"}, .outputs = {"a"}});
  cycle.node({.kind = "Relu", .inputs = {"a"}, .outputs = {"b"}});
  EXPECT_THAT(refusal(cycle.bytes()), HasSubstr("node 0 '' (Relu): is part of a cycle"));
  OnnxModel dangling;
  dangling.node({.kind = "Relu", .inputs = {"nowhere"}, .outputs = {"a"}});
  EXPECT_THAT(refusal(dangling.bytes()), HasSubstr("reads 'nowhere', which nothing produces"));
  OnnxModel contradiction;
  contradiction.input("a", {2, 3});
  contradiction.input("b", {4, 5});
  contradiction.node({.kind = "MatMul", .inputs = {"a", "b"}, .outputs = {"c"}});
  EXPECT_THAT(refusal(contradiction.bytes()), HasSubstr("MatMul sums over 3 and 4"));
  OnnxModel huge;
  huge.input("a", {std::int64_t{1} << 40, std::int64_t{1} << 40});
  EXPECT_THAT(refusal(huge.bytes()), HasSubstr("the size of 'a' leaves 64 bits"));
  OnnxModel no_output;
  no_output.input("a", {1});
  no_output.output("z");
  EXPECT_THAT(refusal(no_output.bytes()), HasSubstr("output 'z'"));
}

TEST(OnnxReader, RefusesDeeplyNestedGraphs) {
  std::string graph;
  for (int i = 0; i < 1000; ++i) {
    OnnxModel level;
    level.node({.kind = "If", .inputs = {}, .outputs = {"y"}, .graphs = {graph}});
    graph = level.graph();
  }
  EXPECT_THAT(refusal(OnnxModel::wrap(graph)), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace plimsoll::graph
