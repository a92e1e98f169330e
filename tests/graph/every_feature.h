// SPDX-License-Identifier: Apache-2.0
// One ONNX model, made by hand, with everything that the reader supports: every operator with a
// rule, every way to write a constant, a shape or a weight, sub-graphs, other domains.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/rules.h"
#include "onnx_model.h"

namespace plimsoll::graph::testing {

// What a tensor that some node writes has to come out as.
struct Expected {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

class EveryFeature {
 public:
  EveryFeature() {
    model_.remark("passed over");
    add_inputs();
    add_constants();
    add_elementwise();
    add_reductions();
    add_windows();
    add_products();
    add_movements();
    add_folded_arithmetic();
    add_subgraphs();
    add_other_domains();
    model_.output("y");
    model_.output("relu");
  }

  std::string bytes() const { return model_.bytes(); }
  // The bytes of every-feature.bin beside it: two numbers to pass over, then [4, -1].
  static std::vector<std::int64_t> external() { return {7, 7, 4, -1}; }
  const std::vector<Expected>& expected() const { return expected_; }
  std::int64_t kept_ops() const { return kept_ops_; }

 private:
  using Shape = std::vector<std::int64_t>;
  const Shape kX = {2, 4, 6, 6};

  // A node that stays; `element` is the size of one element of its results.
  void keep(OnnxNode node, const std::vector<Shape>& shapes, std::int64_t element = 4) {
    std::vector<std::int64_t> elements(shapes.size(), element);
    keep_mixed(std::move(node), shapes, elements);
  }
  void keep_mixed(OnnxNode node, const std::vector<Shape>& shapes,
                  const std::vector<std::int64_t>& elements) {
    if (node.outputs.empty()) {
      for (std::size_t i = 0; i < shapes.size(); ++i)
        node.outputs.push_back("t" + std::to_string(expected_.size() + i));
    }
    std::size_t at = 0;
    for (const std::string& name : node.outputs) {
      if (name.empty()) continue;
      std::int64_t bytes = elements[at];
      for (const std::int64_t extent : shapes[at]) bytes *= extent;
      expected_.push_back({name, shapes[at++], bytes});
    }
    if (node.name.empty()) node.name = node.kind + " " + std::to_string(kept_ops_);
    model_.node(node);
    ++kept_ops_;
  }
  void fold(const OnnxNode& node) { model_.node(node); }

  void add_inputs() {
    model_.symbolic_input("x", "batch", {4, 6, 6});  // [2, 4, 6, 6] with --dim batch=2
    model_.input("row", {6});
    model_.input("matrix", {2, 8});
    model_.input("flags", {2, 4, 6, 6}, 9);
    model_.input("indices", {3}, 7);
    model_.input("where_indices", {2, 1, 6, 6}, 7);
    model_.input("w", {8, 4, 3, 3});  // listed as input too, as files of older versions do
    model_.weight("w", {8, 4, 3, 3});
    model_.weight("w2", {8, 2, 3, 3});
    model_.weight("wt", {4, 5, 3, 3});
    model_.weight("square", {8, 8});
  }

  void add_constants() {
    model_.constant("axis_1", {1});
    model_.constant("flat", {0, -1});
    model_.listed_constant("one_two", {1, 2}, true);
    model_.listed_constant("three_two", {3, 2}, false);
    model_.real_constant("scales", {1, 1, 1.5F, 2});
    model_.listed_real_constant("doubles", {1, 1, 2, 2});
    model_.constant("sizes", {2, 4, 3, 9});
    model_.constant("starts", {-2});
    model_.constant("ends", {9223372036854775807});
    model_.constant("back_start", {-1});
    model_.constant("back_end", {-9223372036854775807});
    model_.constant("axis_3", {3});
    model_.constant("step_minus_2", {-2});
    model_.constant("step_1", {1});
    model_.constant("pads", {1, 2});
    model_.constant("big", {2, 4, 6, 6});
    model_.constant("repeats", {1, 2, 1, 1});
    model_.constant("halves", {1, 3});
    model_.external_constant("target", 2, "every-feature.bin", 16);
  }

  void add_elementwise() {
    // Before what it reads: the format asks for order, files break it.
    keep({.kind = "Neg", .inputs = {"relu"}, .outputs = {"y"}}, {kX});
    for (const std::string_view kind : onnx::kUnary) {
      const bool is_relu = kind == "Relu";
      keep({.kind = std::string(kind),
            .inputs = {"x"},
            .outputs = is_relu ? std::vector<std::string>{"relu"} : std::vector<std::string>{}},
           {kX});
    }
    for (const std::string_view kind : onnx::kShapeKeeping) {
      if (kind == "Dropout") {
        keep_mixed({.kind = "Dropout", .inputs = {"x"}, .outputs = {"dropped", "mask"}}, {kX, kX},
                   {4, 1});
      } else if (kind == "Cast") {
        keep({.kind = "Cast", .inputs = {"x"}, .integers = {{"to", 10}}}, {kX}, 2);
      } else if (kind == "BatchNormalization") {
        // Stripped of its weights.
        keep({.kind = "BatchNormalization",
              .inputs = {"x", "bn.scale", "bn.bias", "bn.mean", "bn.variance"},
              .reals = {{"epsilon", 1e-5F}}},
             {kX});
      } else {
        keep({.kind = std::string(kind), .inputs = {"x"}}, {kX});
      }
    }
    for (const std::string_view kind : onnx::kBroadcasting) {
      std::vector<std::string> inputs = {"x", "row"};
      if (kind == "Where") inputs = {"flags", "x", "row"};
      keep({.kind = std::string(kind), .inputs = inputs}, {kX});
    }
    for (const std::string_view kind : onnx::kComparing) {
      const bool logical = kind == "And" || kind == "Or" || kind == "Xor";
      std::vector<std::string> inputs(2, logical ? "flags" : "x");
      if (kind == "IsNaN") inputs.pop_back();
      keep({.kind = std::string(kind), .inputs = inputs}, {kX}, 1);
    }
  }

  void add_reductions() {
    for (const std::string_view kind : onnx::kReducing)
      keep({.kind = std::string(kind),
            .inputs = {"x"},
            .ints = {{"axes", {1, -1}}},
            .integers = {{"keepdims", 0}}},
           {{2, 6}});
    keep({.kind = "ReduceSum", .inputs = {"x", "axis_1"}}, {{2, 1, 6, 6}});
    keep({.kind = "ReduceSum", .inputs = {"x"}}, {{1, 1, 1, 1}});
    keep({.kind = "ReduceSum", .inputs = {"x"}, .integers = {{"noop_with_empty_axes", 1}}}, {kX});
    keep({.kind = "ArgMax", .inputs = {"x"}, .integers = {{"axis", 1}, {"keepdims", 0}}},
         {{2, 6, 6}}, 8);
    keep({.kind = "ArgMin", .inputs = {"x"}, .integers = {{"axis", -1}}}, {{2, 4, 6, 1}}, 8);
  }

  void add_windows() {
    keep({.kind = "Conv",
          .inputs = {"x", "w", "bias.stripped"},
          .ints = {{"strides", {2, 2}}, {"pads", {1, 1, 1, 1}}, {"kernel_shape", {3, 3}}},
          .packed = true},
         {{2, 8, 3, 3}});
    keep({.kind = "Conv", .inputs = {"x", "w"}, .ints = {{"dilations", {2, 1}}}}, {{2, 8, 2, 4}});
    keep({.kind = "Conv",
          .inputs = {"x", "w2"},
          .integers = {{"group", 2}},
          .strings = {{"auto_pad", "SAME_UPPER"}}},
         {{2, 8, 6, 6}});
    keep({.kind = "Conv", .inputs = {"x", "w"}, .strings = {{"auto_pad", "VALID"}}},
         {{2, 8, 4, 4}});
    keep({.kind = "ConvTranspose",
          .inputs = {"x", "wt"},
          .ints = {{"strides", {2, 2}}, {"pads", {1, 1, 1, 1}}, {"output_padding", {1, 1}}}},
         {{2, 5, 12, 12}});
    keep({.kind = "ConvTranspose", .inputs = {"x", "wt"}, .ints = {{"output_shape", {7, 9}}}},
         {{2, 5, 7, 9}});
    keep_mixed({.kind = "MaxPool",
                .inputs = {"x"},
                .outputs = {"pooled", "places"},
                .ints = {{"kernel_shape", {3, 3}}, {"strides", {2, 2}}},
                .integers = {{"ceil_mode", 1}}},
               {{2, 4, 3, 3}, {2, 4, 3, 3}}, {4, 8});
    keep({.kind = "AveragePool", .inputs = {"x"}, .ints = {{"kernel_shape", {2, 2}}}},
         {{2, 4, 5, 5}});
    keep({.kind = "LpPool", .inputs = {"x"}, .ints = {{"kernel_shape", {1, 6}}}}, {{2, 4, 6, 1}});
    for (const std::string_view kind : onnx::kGlobalPools)
      keep({.kind = std::string(kind), .inputs = {"x"}}, {{2, 4, 1, 1}});
  }

  void add_products() {
    keep({.kind = "Gemm", .inputs = {"matrix", "square"}}, {{2, 8}});
    keep({.kind = "Gemm", .inputs = {"matrix", "matrix"}, .integers = {{"transA", 1}}}, {{8, 8}});
    keep({.kind = "Gemm", .inputs = {"matrix", "matrix"}, .integers = {{"transB", 1}}}, {{2, 2}});
    keep({.kind = "MatMul", .inputs = {"matrix", "square"}}, {{2, 8}});
    keep({.kind = "MatMul", .inputs = {"x", "row"}}, {{2, 4, 6}});
    keep({.kind = "MatMul", .inputs = {"x", "x"}}, {kX});
  }

  void add_movements() {
    keep({.kind = "Concat", .inputs = {"x", "x"}, .integers = {{"axis", -3}}}, {{2, 8, 6, 6}});
    keep({.kind = "Reshape", .inputs = {"x", "flat"}}, {{2, 144}});
    keep({.kind = "Reshape", .inputs = {"x", "target"}}, {{4, 72}});
    keep({.kind = "Transpose", .inputs = {"x"}, .ints = {{"perm", {0, 2, 3, 1}}}}, {{2, 6, 6, 4}});
    keep({.kind = "Transpose", .inputs = {"matrix"}}, {{8, 2}});
    keep({.kind = "Unsqueeze", .inputs = {"matrix"}, .ints = {{"axes", {0, -1}}}}, {{1, 2, 8, 1}});
    keep({.kind = "Unsqueeze", .inputs = {"matrix", "axis_1"}, .outputs = {"thin"}}, {{2, 1, 8}});
    keep({.kind = "Squeeze", .inputs = {"thin", "axis_1"}}, {{2, 8}});
    keep({.kind = "Squeeze", .inputs = {"thin"}}, {{2, 8}});
    keep({.kind = "Flatten", .inputs = {"x"}, .integers = {{"axis", 2}}}, {{8, 36}});
    keep({.kind = "Slice",
          .inputs = {"x"},
          .ints = {{"starts", {1, 0}}, {"ends", {3, 4}}, {"axes", {1, 2}}}},
         {{2, 2, 4, 6}});
    keep({.kind = "Slice", .inputs = {"x", "starts", "ends", "axis_3", "step_1"}}, {{2, 4, 6, 2}});
    keep({.kind = "Slice", .inputs = {"x", "back_start", "back_end", "axis_3", "step_minus_2"}},
         {{2, 4, 6, 3}});
    keep({.kind = "Pad", .inputs = {"matrix"}, .ints = {{"pads", {0, 1, 0, 2}}}}, {{2, 11}});
    keep({.kind = "Pad", .inputs = {"x", "pads", "", "axis_3"}}, {{2, 4, 6, 9}});
    keep({.kind = "Resize", .inputs = {"x", "", "scales"}}, {{2, 4, 9, 12}});
    keep({.kind = "Resize", .inputs = {"x", "", "", "sizes"}}, {{2, 4, 3, 9}});
    keep({.kind = "Upsample", .inputs = {"x", "doubles"}}, {{2, 4, 12, 12}});
    keep({.kind = "Gather", .inputs = {"x", "indices"}, .integers = {{"axis", 1}}}, {{2, 3, 6, 6}});
    keep({.kind = "GatherElements", .inputs = {"x", "where_indices"}}, {{2, 1, 6, 6}});
    keep({.kind = "Expand", .inputs = {"row", "big"}}, {kX});
    keep({.kind = "Tile", .inputs = {"x", "repeats"}}, {{2, 8, 6, 6}});
    keep({.kind = "ConstantOfShape", .inputs = {"three_two"}}, {{3, 2}});
    keep({.kind = "ConstantOfShape", .inputs = {"three_two"}, .tensors = {{"value", {9}}}},
         {{3, 2}}, 8);
    keep({.kind = "DepthToSpace", .inputs = {"x"}, .integers = {{"blocksize", 2}}},
         {{2, 1, 12, 12}});
    keep({.kind = "SpaceToDepth", .inputs = {"x"}, .integers = {{"blocksize", 3}}},
         {{2, 36, 2, 2}});
    keep({.kind = "Split", .inputs = {"x"}, .ints = {{"split", {1, 3}}}, .integers = {{"axis", 1}}},
         {{2, 1, 6, 6}, {2, 3, 6, 6}});
    keep({.kind = "Split", .inputs = {"x", "halves"}, .integers = {{"axis", 1}}},
         {{2, 1, 6, 6}, {2, 3, 6, 6}});
    keep({.kind = "Split",
          .inputs = {"x"},
          .outputs = {"a", "b", "c", "d"},
          .integers = {{"axis", 2}}},
         {{2, 4, 2, 6}, {2, 4, 2, 6}, {2, 4, 2, 6}, {2, 4, 0, 6}});
  }

  // None of these stays; the Reshapes behind them show what they came to.
  void add_folded_arithmetic() {
    fold({.kind = "Constant", .outputs = {"c2"}, .tensors = {{"value", {2}}}});
    fold({.kind = "Constant", .outputs = {"c3"}, .integers = {{"value_int", 3}}});
    fold({.kind = "Constant", .outputs = {"c12"}, .ints = {{"value_ints", {1, 2}}}});
    fold({.kind = "Constant", .outputs = {"unread"}, .reals = {{"value_float", 0.5F}}});
    fold({.kind = "Shape", .inputs = {"x"}, .outputs = {"shape"}});
    fold({.kind = "Shape",
          .inputs = {"x"},
          .outputs = {"tail"},
          .integers = {{"start", -2}, {"end", 4}}});
    fold({.kind = "Size", .inputs = {"x"}, .outputs = {"size"}});
    fold({.kind = "Gather", .inputs = {"shape", "axis_1"}, .outputs = {"four"}});
    fold({.kind = "Mul", .inputs = {"four", "c2"}, .outputs = {"eight"}});
    fold({.kind = "Add", .inputs = {"eight", "c2"}, .outputs = {"ten"}});
    fold({.kind = "Sub", .inputs = {"ten", "c2"}, .outputs = {"eight_again"}});
    fold({.kind = "Div", .inputs = {"size", "eight_again"}, .outputs = {"thirty_six"}});
    fold({.kind = "Cast", .inputs = {"thirty_six"}, .outputs = {"cast"}, .integers = {{"to", 7}}});
    fold({.kind = "Identity", .inputs = {"cast"}, .outputs = {"same"}});
    fold({.kind = "Concat",
          .inputs = {"eight_again", "same"},
          .outputs = {"to"},
          .integers = {{"axis", 0}}});
    keep({.kind = "Reshape", .inputs = {"x", "to"}}, {{8, 36}});
    fold({.kind = "Unsqueeze", .inputs = {"c3"}, .outputs = {"list"}, .ints = {{"axes", {0}}}});
    fold({.kind = "Squeeze", .inputs = {"list"}, .outputs = {"scalar"}, .ints = {{"axes", {0}}}});
    fold({.kind = "Reshape", .inputs = {"scalar", "step_1"}, .outputs = {"list_again"}});
    fold({.kind = "Slice", .inputs = {"c12", "starts", "ends"}, .outputs = {"both"}});
    fold({.kind = "Concat",
          .inputs = {"both", "list_again", "back_start"},
          .outputs = {"to_4"},
          .integers = {{"axis", 0}}});
    keep({.kind = "Reshape", .inputs = {"x", "to_4"}}, {{1, 2, 3, 48}});
    fold({.kind = "Concat",
          .inputs = {"one_two", "tail"},
          .outputs = {"to_wide"},
          .integers = {{"axis", 0}}});
    keep({.kind = "ConstantOfShape", .inputs = {"to_wide"}}, {{1, 2, 6, 6}});
  }

  void add_subgraphs() {
    OnnxModel inner;
    inner.node({.kind = "Add", .inputs = {"row", "x"}, .outputs = {"deep"}});
    inner.output("deep");
    OnnxModel outer;
    outer.weight("own", {6});
    outer.node({.kind = "Mul", .inputs = {"own", "row"}, .outputs = {"local"}});
    outer.node(
        {.kind = "If", .inputs = {"local"}, .outputs = {"deeper"}, .graphs = {inner.graph()}});
    outer.output("deeper");
    for (const std::string kind : {"If", "Loop", "Scan"}) {
      const std::string result = "of_" + kind;
      model_.declare(result, kX);
      keep({.kind = kind, .inputs = {"flags"}, .outputs = {result}, .graphs = {outer.graph()}},
           {kX});
    }
  }

  void add_other_domains() {
    keep({.kind = "Relu", .inputs = {"x"}, .domain = "ai.onnx"}, {kX});
    model_.declare("strange", {5, 7}, 11);
    model_.declare("packed", {3}, 22);
    keep_mixed({.kind = "Strange",
                .inputs = {"x", "", "row"},
                .outputs = {"strange", "", "packed"},
                .domain = "com.example"},
               {{5, 7}, {3}}, {8, 1});
    // Twelve bits take two bytes, not three.
    expected_.back().bytes = 2;
    // What is declared wins over what would follow.
    model_.declare("declared", {2, 8, 5, 5}, 16);
    keep({.kind = "Conv", .inputs = {"x", "w"}, .outputs = {"declared"}}, {{2, 8, 5, 5}}, 2);
  }

  OnnxModel model_;
  std::vector<Expected> expected_;
  std::int64_t kept_ops_ = 0;
};

}  // namespace plimsoll::graph::testing
