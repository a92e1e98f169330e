// SPDX-License-Identifier: Apache-2.0
// The functions that are called once before anything runs are those that LibTorch has of MKL.
#include "vector_math.h"

#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace plimsoll::detail {
namespace {

TEST(VectorFunctions, AreThoseThatLibTorchTakesFromMkl) {
  const std::string path = PLIMSOLL_TORCH_DIR "/include/ATen/cpu/vml.h";
  std::ifstream header(path);
  ASSERT_TRUE(header) << path;
  const std::regex taken(R"(^IMPLEMENT_VML_MKL\((\w+), \w+\))");
  std::vector<std::string> expected;
  std::smatch match;
  for (std::string line; std::getline(header, line);)
    if (std::regex_search(line, match, taken)) expected.push_back(match[1]);
  std::vector<std::string> names;
  for (const VectorFunction& function : vector_functions()) names.emplace_back(function.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));
}

TEST(VectorFunctions, AreCalledByTheirNames) {
  for (const VectorFunction& function : vector_functions()) {
    torch::Tensor found = torch::full({1}, 0.75);
    torch::jit::Stack stack{found.clone()};
    c10::Dispatcher::singleton()
        .findSchemaOrThrow(("aten::" + std::string(function.name)).c_str(), "")
        .callBoxed(&stack);
    function.call(found);
    EXPECT_TRUE(torch::equal(found, stack.back().toTensor())) << function.name;
  }
}

}  // namespace
}  // namespace plimsoll::detail
