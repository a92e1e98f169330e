// SPDX-License-Identifier: Apache-2.0
// Every case runs forward and backward on the CPU and twice on the device, the second time without
// waiting, and gives the same bits, or says why not and gives the same values.
#include "operator_zoo.h"

#include "device_fixture.h"

namespace plimsoll::simgpu {

namespace {

class OperatorZoo : public OnDevice {
 protected:
  void expect_equal(const std::vector<ZooCase>& cases) {
    for (const ZooCase& one : cases) {
      SCOPED_TRACE(one.name);
      const Tensors on_cpu = run_on(one, at::kCPU);
      EXPECT_EQ(difference(one, on_cpu, run_on(one, sim())), "");
      const CallCounts before = call_counts();
      EXPECT_EQ(difference(one, on_cpu, run_on(one, sim())), "") << "the second time";
      EXPECT_EQ(call_counts().first_seen, before.first_seen) << "nothing is new the second time";
    }
  }
};

TEST_F(OperatorZoo, Layers) { expect_equal(layer_cases()); }
TEST_F(OperatorZoo, Losses) { expect_equal(loss_cases()); }
TEST_F(OperatorZoo, Elementwise) { expect_equal(elementwise_cases()); }
TEST_F(OperatorZoo, Reductions) { expect_equal(reduction_cases()); }
TEST_F(OperatorZoo, ShapesAndIndexing) { expect_equal(indexing_cases()); }
TEST_F(OperatorZoo, LinearAlgebra) { expect_equal(linear_algebra_cases()); }
TEST_F(OperatorZoo, Types) { expect_equal(type_cases()); }
TEST_F(OperatorZoo, Random) { expect_equal(random_cases()); }
TEST_F(OperatorZoo, Lists) { expect_equal(list_cases()); }
TEST_F(OperatorZoo, Recurrent) { expect_equal(recurrent_cases()); }

TEST_F(OperatorZoo, HasItsNumberOfCases) {
  std::size_t count = 0;
  std::size_t exceptions = 0;
  for (auto&& cases :
       {layer_cases(), loss_cases(), elementwise_cases(), reduction_cases(), indexing_cases(),
        linear_algebra_cases(), type_cases(), random_cases(), list_cases(), recurrent_cases()}) {
    count += cases.size();
    for (const ZooCase& one : cases) exceptions += one.why_not_bits.empty() ? 0 : 1;
  }
  EXPECT_GE(count, 226U);
  EXPECT_EQ(exceptions, 3U) << "rnn, gru and lstm over several time steps";
}

}  // namespace
}  // namespace plimsoll::simgpu
