// SPDX-License-Identifier: Apache-2.0
// Other people's instances, by node limits alone, so that the verdicts repeat.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_io.h"
#include "plimsoll/plan/layout_validate.h"

namespace plimsoll::plan {
namespace {

struct ReferenceCase {
  const char* file;
  std::int64_t capacity_bytes;
};

class LayoutReference : public ::testing::TestWithParam<ReferenceCase> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("PLIMSOLL_REFERENCE_DATA");
    if (folder == nullptr)
      GTEST_SKIP() << "PLIMSOLL_REFERENCE_DATA names no folder of reference data";
    problem_ = read_layout(std::filesystem::path(folder) / GetParam().file);
    problem_.arenas[0].capacity_bytes = GetParam().capacity_bytes;
  }
  LayoutProblem problem_;
};

TEST_P(LayoutReference, FitsItsCapacity) {
  const LayoutResult result = solve_layout(problem_);
  EXPECT_TRUE(result.status == LayoutStatus::kOptimal || result.status == LayoutStatus::kFeasible)
      << layout_status_name(result.status) << " " << result.arena_bytes();
  EXPECT_FALSE(validate_layout_sweep(problem_, result.offsets_bytes).has_value());
  EXPECT_FALSE(problem_.buffers.size() < 2000 &&
               validate_layout(problem_, result.offsets_bytes).has_value());
}

std::vector<ReferenceCase> minimalloc_cases() {
  std::vector<ReferenceCase> cases;
  for (const char* file :
       {"minimalloc/challenging/A.1048576.csv", "minimalloc/challenging/B.1048576.csv",
        "minimalloc/challenging/C.1048576.csv", "minimalloc/challenging/D.1048576.csv",
        "minimalloc/challenging/E.1048576.csv", "minimalloc/challenging/F.1048576.csv",
        "minimalloc/challenging/G.1048576.csv", "minimalloc/challenging/H.1048576.csv",
        "minimalloc/challenging/I.1048576.csv", "minimalloc/challenging/J.1048576.csv",
        "minimalloc/challenging/K.1048576.csv"}) {
    // The published capacity, and 1, 2, 5 and 10 % more.
    for (const std::int64_t more : {0, 1, 2, 5, 10})
      cases.push_back({file, 1'048'576 + 1'048'576 * more / 100});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(MiniMalloc, LayoutReference, ::testing::ValuesIn(minimalloc_cases()));
// Capacities: the load, or a little more where the figure to keep is a ratio.
INSTANTIATE_TEST_SUITE_P(
    AtLoad, LayoutReference,
    ::testing::Values(ReferenceCase{"minimalloc/challenging/C.1048576.csv", 1'039'360},
                      ReferenceCase{"minimalloc/examples/input.12.csv", 12},
                      ReferenceCase{"somas/resnet50.csv", 1'515'472'556},
                      ReferenceCase{"iopddl/G_1.csv", 3'030'937'746},
                      ReferenceCase{"somas/pangu_2.6B.csv", 5'543'925'024},  // +0.25 %
                      ReferenceCase{"iopddl/S_1.csv", 1'521'115'470}));      // +1.5 %

}  // namespace
}  // namespace plimsoll::plan
