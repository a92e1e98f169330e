// SPDX-License-Identifier: Apache-2.0
// A layout that a command wrote, read back and checked.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_io.h"
#include "plimsoll/plan/layout_validate.h"

namespace plimsoll::cli::testing {

struct PlacedLayout {
  plan::LayoutProblem problem;
  std::int64_t top_bytes = 0;  // of the highest buffer
};

// Fails the test where the layout is not valid.
inline PlacedLayout read_placed(const std::string& path) {
  PlacedLayout placed{plan::read_layout(path)};
  std::vector<std::int64_t> offsets;
  for (const plan::LayoutBuffer& buffer : placed.problem.buffers) {
    offsets.push_back(buffer.fixed_offset_bytes);
    placed.top_bytes = std::max(placed.top_bytes, buffer.fixed_offset_bytes + buffer.size_bytes);
  }
  EXPECT_FALSE(plan::validate_layout(placed.problem, offsets).has_value()) << path;
  return placed;
}

}  // namespace plimsoll::cli::testing
