// SPDX-License-Identifier: Apache-2.0
// tests/data/every-feature.onnx, read whole.
#include "every_feature.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/onnx.h"

namespace plimsoll::graph {
namespace {

using ::testing::ElementsAreArray;
using testing::EveryFeature;
using testing::Expected;

const std::string kFile = PLIMSOLL_TEST_DATA "/every-feature.onnx";
const OnnxOptions kBatchOfTwo = {.dimensions = {{"batch", 2}}};

std::string external_bytes() {
  const auto values = EveryFeature::external();
  std::string bytes(values.size() * sizeof(values[0]), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::map<std::string, ValueId, std::less<>> values_by_name(const Graph& graph) {
  std::map<std::string, ValueId, std::less<>> values;
  for (std::size_t i = 0; i < graph.value_count(); ++i)
    values.emplace(graph.name(ValueId(i)), ValueId(i));
  return values;
}

// Where they differ, what they should be is left beside the test's other scratch files.
TEST(EveryFeature, EqualsTheFilesInTheDataFolder) {
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>("every-feature.onnx", EveryFeature().bytes()),
        std::pair<std::string, std::string>("every-feature.bin", external_bytes())}) {
    const std::string file = std::string(PLIMSOLL_TEST_DATA "/") + name;
    if (read(file) == bytes) continue;
    std::ofstream(::testing::TempDir() + name, std::ios::binary) << bytes;
    ADD_FAILURE() << file << " is not what every_feature.h makes; compare "
                  << ::testing::TempDir() + name;
  }
}

TEST(EveryFeature, EveryTensorHasTheShapeAndSizeWorkedOutByHand) {
  const Graph graph = read_onnx_file(kFile, kBatchOfTwo);
  const auto values = values_by_name(graph);
  const EveryFeature made;
  for (const Expected& expected : made.expected()) {
    const auto found = values.find(expected.name);
    ASSERT_NE(found, values.end()) << expected.name;
    const OpId maker = graph.producer(found->second);
    EXPECT_THAT(graph.shape(found->second), ElementsAreArray(expected.shape))
        << expected.name << " of " << graph.name(maker);
    EXPECT_EQ(graph.size_bytes(found->second), expected.bytes)
        << expected.name << " of " << graph.name(maker);
  }
  EXPECT_EQ(static_cast<std::int64_t>(graph.op_count()), made.kept_ops());
  // Six inputs beside the weights; what is folded is no value.
  EXPECT_EQ(graph.value_count(), made.expected().size() + 6);
}

TEST(EveryFeature, LivesAndIsOverwrittenAsTheFormatSays) {
  const Graph graph = read_onnx_file(kFile, kBatchOfTwo);
  const auto values = values_by_name(graph);
  const ValueId x = values.at("x"), relu = values.at("relu"), y = values.at("y");
  EXPECT_EQ(graph.kind(x), ValueKind::kInput);
  EXPECT_TRUE(graph.live_at_start(graph.storage(x)));
  EXPECT_FALSE(graph.live_at_end(graph.storage(x)));
  for (const ValueId output : {relu, y}) {
    EXPECT_EQ(graph.kind(output), ValueKind::kOutput);
    EXPECT_TRUE(graph.live_at_end(graph.storage(output)));
  }
  EXPECT_EQ(graph.inplace_operand(graph.producer(relu)), x);
  EXPECT_THAT(graph.predecessors(graph.producer(y)), ElementsAreArray({graph.producer(relu)}));
  // What a sub-graph takes from around it, at any depth, is read by its node.
  for (const char* kind : {"If", "Loop", "Scan"}) {
    const OpId op = graph.producer(values.at(std::string("of_") + kind));
    EXPECT_THAT(graph.operands(op),
                ::testing::IsSupersetOf({values.at("flags"), values.at("row"), x}));
  }
  EXPECT_EQ(graph.data_type(values.at("declared")), DataType::kBFloat16);
}

TEST(EveryFeature, IsRefusedByNameWithoutItsExtentOrItsExternalData) {
  EXPECT_THROW(read_onnx_file(kFile), InvalidFile);
  try {
    read_onnx(EveryFeature().bytes(), "elsewhere/model.onnx", kBatchOfTwo);
    ADD_FAILURE() << "read without the values that a Reshape needs";
  } catch (const InvalidFile& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("nothing says or implies the shape of"));
  }
}

TEST(EveryFeature, ComesBackFromJson) {
  const Graph graph = read_onnx_file(kFile, kBatchOfTwo);
  const Graph again = read_json(write_json(graph), "again.json");
  EXPECT_EQ(write_json(again), write_json(graph));
  EXPECT_EQ(peak_bytes(again, again.program_order()), peak_bytes(graph, graph.program_order()));
}

}  // namespace
}  // namespace plimsoll::graph
