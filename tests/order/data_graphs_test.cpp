// SPDX-License-Identifier: Apache-2.0
// The graphs of tests/data/graphs: the listed optima, proved, and proofs that check.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "plimsoll/graph/memory.h"
#include "plimsoll/graph/text.h"
#include "plimsoll/order/cut.h"
#include "plimsoll/order/from_graph.h"

namespace plimsoll::order {
namespace {

// Optima in units of 1024 bytes, to the digits that the list gives.
struct Listed {
  const char* file;
  double kib;
  double digit;  // the value of the last digit given
};

std::ostream& operator<<(std::ostream& out, const Listed& listed) { return out << listed.file; }

graph::Graph read(const std::string& name) {
  return graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/" + name + ".txt");
}

class ListedOptimum : public ::testing::TestWithParam<Listed> {};

TEST_P(ListedOptimum, IsReachedAndProved) {
  const graph::Graph graph = read(GetParam().file);
  const OrderResult result = solve(graph, {});
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_NEAR(static_cast<double>(result.peak_bytes) / 1024, GetParam().kib, GetParam().digit);
  EXPECT_TRUE(result.proved());
  EXPECT_GE(result.program_peak_bytes, result.peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(Inference, ListedOptimum,
                         ::testing::Values(Listed{"inference/nasnet-cifar", 1984, 0},
                                           Listed{"inference/nasnet-imagenet", 4369.2, .051},
                                           Listed{"inference/amoebanet-cifar", 1440, 0},
                                           Listed{"inference/amoebanet-imagenet", 4361, .051},
                                           Listed{"inference/darts-cifar", 1584, 0},
                                           Listed{"inference/darts-imagenet", 4508, .051},
                                           Listed{"inference/pnas-cifar", 2496, 0},
                                           Listed{"inference/pnas-imagenet", 8599.5, .051},
                                           Listed{"inference/randwire1-wsum-32", 3344.2, .051},
                                           Listed{"inference/randwire2-wsum-32", 3822.0, .051},
                                           Listed{"inference/randwire3-wsum-32", 4538.6, .051},
                                           Listed{"inference/randwire1-wsum-64", 5733.0, .051},
                                           Listed{"inference/randwire1-stack-32", 5494.1, .051},
                                           Listed{"inference/randwire2-stack-32", 5016.4, .051},
                                           Listed{"inference/hrnet-w18", 7056, 0},
                                           Listed{"inference/densenet121", 8232, 0}));

INSTANTIATE_TEST_SUITE_P(Training, ListedOptimum,
                         ::testing::Values(Listed{"training/x-alexnet-1", 147508, .5},
                                           Listed{"training/x-alexnet-32", 149120, .5},
                                           Listed{"training/x-vgg11-1", 401522, .5},
                                           Listed{"training/x-vgg11-32", 1535040, .5},
                                           Listed{"training/x-squeezenet1_0-1", 36683, .5},
                                           Listed{"training/x-squeezenet1_0-32", 1141163, .5},
                                           Listed{"training/x-resnet18-1", 30418, .51},
                                           Listed{"training/x-resnet18-32", 686626, .51},
                                           Listed{"training/x-resnet50-1", 92312, .51},
                                           Listed{"training/x-resnet50-32", 2690896, .51},
                                           Listed{"training/x-mobilenet_v2-1", 77327, .5},
                                           Listed{"training/x-mobilenet_v2-32", 2440725, .5},
                                           Listed{"training/x-vit_b_16-1", 140658, .5},
                                           Listed{"training/x-vit_b_16-32", 4425408, .5},
                                           Listed{"training/x-densenet121-1", 127505, .5},
                                           Listed{"training/x-densenet121-32", 4067719, .5},
                                           Listed{"training/t-randwire32", 1687633.5, 0}));

class OtherGraph : public ::testing::TestWithParam<const char*> {};

TEST_P(OtherGraph, IsProved) {
  const graph::Graph graph = read(GetParam());
  const OrderResult result = solve(graph, {});
  EXPECT_EQ(graph::peak_bytes(graph, result.order), result.peak_bytes);
  EXPECT_TRUE(result.proved());
}

INSTANTIATE_TEST_SUITE_P(
    All, OtherGraph,
    ::testing::Values("inference/randwire4-wsum-32", "inference/randwire5-wsum-32",
                      "inference/randwire6-wsum-32", "inference/randwire7-wsum-32",
                      "inference/randwire8-wsum-32", "inference/randwire9-wsum-32",
                      "inference/randwire10-wsum-32", "training/t-bert", "training/t-gpt2xl",
                      "training/t-gpt2xlb1", "training/t-resnet1001", "training/t-resnet50",
                      "training/t-unet"));

TEST(PinnedBy, NamesTheStoragesThatNoOrderSeparatesAtOneOperator) {
  for (const std::string folder : {"inference", "training"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(PLIMSOLL_TEST_DATA "/graphs/" + folder)) {
      if (entry.path().extension() != ".txt") continue;
      const std::string name = folder + "/" + entry.path().stem().string();
      const graph::Graph graph = read(name);
      const OrderResult result = solve(graph, {});
      ASSERT_TRUE(result.pinned_by.op.valid()) << name;
      std::int64_t sum = graph.workspace_bytes(result.pinned_by.op);
      for (const graph::StorageId s : result.pinned_by.storages) sum += graph.size_bytes(s);
      EXPECT_EQ(sum, result.pinned_by.bytes) << name;
      EXPECT_LE(result.pinned_by.bytes, result.lower_bound_bytes) << name;
      if (result.proof == BoundProof::kCut) {
        EXPECT_EQ(result.pinned_by.bytes, result.lower_bound_bytes) << name;
      }
    }
  }
}

// Where no one operator pins the peak, what is named is the most that any operator does.
TEST(PinnedBy, NamesTheLargestCutWhereOnlyASearchProvesThePeak) {
  const graph::Graph graph = read("training/x-vgg11-32");
  const OrderResult result = solve(graph, {});
  const Problem problem = make_problem(graph);
  std::int64_t largest = 0;
  for (std::int32_t o = 0; o < problem.op_count(); ++o)
    largest = std::max(largest, cut_bound(problem, o, {}).bytes);
  EXPECT_LT(largest, result.peak_bytes);
  EXPECT_EQ(result.proof, BoundProof::kExhausted);
  EXPECT_EQ(result.pinned_by.bytes, largest);
}

}  // namespace
}  // namespace plimsoll::order
