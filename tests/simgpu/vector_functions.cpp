// SPDX-License-Identifier: Apache-2.0
// Calls MKL's vector functions once before any test runs. Stock comes first in these programs, and
// the first call of one on several threads may be wrong in stock too (vector_math.h).
#include <gtest/gtest.h>

#include "vector_math.h"

namespace plimsoll::simgpu {
namespace {

class VectorFunctions : public ::testing::Environment {
 public:
  void SetUp() override { detail::resolve_vector_functions(); }
};

[[maybe_unused]] const auto* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new VectorFunctions);

}  // namespace
}  // namespace plimsoll::simgpu
