// SPDX-License-Identifier: Apache-2.0
// Every operator case, forward and backward, in sessions of the least budget it works in: the bits
// that the device gives alone.
#include <algorithm>

#include "plimsoll/session.h"

#include "device_fixture.h"
#include "operator_zoo.h"

namespace plimsoll::simgpu {
namespace {

class SessionZoo : public OnDevice {
 protected:
  // The results of two steps; none where the budget is too small, which then is made larger.
  static std::vector<Tensors> try_within(const ZooCase& one, std::int64_t& budget_bytes) {
    Session session({.budget_bytes = budget_bytes, .device = sim()});
    std::vector<Tensors> results;
    try {
      for (int i = 0; i < 2; ++i) {
        const Step step = session.step();
        results.push_back(run_on(one, sim()));
      }
    } catch (const c10::OutOfMemoryError&) {
      budget_bytes = std::max(session.report().shortage_bytes, budget_bytes + 512);
      return {};
    }
    EXPECT_LE(session.report().peak_bytes, budget_bytes);
    return results;
  }

  static void expect_equal(const std::vector<ZooCase>& cases) {
    for (const ZooCase& one : cases) {
      SCOPED_TRACE(one.name);
      const Tensors stock = run_on(one, sim());
      std::int64_t budget_bytes = 512;
      std::vector<Tensors> inside;
      while (inside.empty()) inside = try_within(one, budget_bytes);
      for (const Tensors& step : inside) {
        ASSERT_EQ(step.size(), stock.size());
        // Alone and inside it is the same device: no exceptions.
        for (std::size_t i = 0; i < stock.size(); ++i) {
          EXPECT_TRUE(same_bits(stock[i], step[i])) << "tensor " << i << " in " << budget_bytes;
        }
      }
    }
  }
};

TEST_F(SessionZoo, Layers) { expect_equal(layer_cases()); }
TEST_F(SessionZoo, Losses) { expect_equal(loss_cases()); }
TEST_F(SessionZoo, Elementwise) { expect_equal(elementwise_cases()); }
TEST_F(SessionZoo, Reductions) { expect_equal(reduction_cases()); }
TEST_F(SessionZoo, ShapesAndIndexing) { expect_equal(indexing_cases()); }
TEST_F(SessionZoo, LinearAlgebra) { expect_equal(linear_algebra_cases()); }
TEST_F(SessionZoo, Types) { expect_equal(type_cases()); }
TEST_F(SessionZoo, Random) { expect_equal(random_cases()); }
TEST_F(SessionZoo, Lists) { expect_equal(list_cases()); }
TEST_F(SessionZoo, Recurrent) { expect_equal(recurrent_cases()); }

}  // namespace
}  // namespace plimsoll::simgpu
