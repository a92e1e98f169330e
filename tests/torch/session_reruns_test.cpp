// SPDX-License-Identifier: Apache-2.0
// Kernels whose results and scratch do not fit in the order in which they ask for them.
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "equality.h"

namespace plimsoll {
namespace {

std::int64_t g_unit = 64 << 10;  // bytes
int g_runs = 0;

at::Tensor units(std::int64_t count) { return at::empty({count * g_unit / 4}, at::kFloat); }

// Needs six units beside its operand, if the result does not stand between the two scratches:
//
//     scratch  [..2..]            gone before the second scratch of 4 is asked for
//     result          [2]
at::Tensor divide_room(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef scales) {
  ++g_runs;
  at::Tensor scratch = units(2).fill_(3);
  at::Tensor result = units(2).zero_();
  const float first = scratch[0].item<float>();
  scratch = at::Tensor();
  scratch = units(4).fill_(first);
  result.add_(scratch.narrow(0, 0, result.numel())).add_(x[0]);
  if (bias) result.add_(bias->item<float>());
  return result.mul_(std::accumulate(scales.begin(), scales.end(), std::int64_t{0}));
}

at::Tensor& divide_room_out(const at::Tensor& x, at::Tensor& out) {
  out.add_(1);
  return out.copy_(divide_room(x, std::nullopt, {1}));
}

at::Tensor divide_room_randomly(const at::Tensor& x) {
  const at::Tensor noise = at::rand({1});
  return divide_room(x, std::nullopt, {1}).add_(noise);
}

// Only LibTorch's own operators are trusted to have no effects but their results.
TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def("plimsoll_divide_room(Tensor x, Tensor? bias, int[] scales) -> Tensor");
  library.def("plimsoll_divide_room_out(Tensor x, Tensor(a!) out) -> Tensor(a!)");
  library.def("plimsoll_divide_room_randomly(Tensor x) -> Tensor",
              {at::Tag::nondeterministic_seeded});
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("plimsoll_divide_room", divide_room);
  library.impl("plimsoll_divide_room_out", divide_room_out);
  library.impl("plimsoll_divide_room_randomly", divide_room_randomly);
}

template <typename Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("aten::plimsoll_") + name).c_str(), "")
      .typed<Signature>();
}

at::Tensor call_divide_room(const at::Tensor& x, const std::optional<at::Tensor>& bias) {
  static const auto op = operator_named<at::Tensor(
      const at::Tensor&, const std::optional<at::Tensor>&, at::IntArrayRef)>("divide_room");
  constexpr std::array<std::int64_t, 2> kScales = {2, 5};
  return op.call(x, bias, kScales);
}

// The operand, the six units that a good layout needs, and a few lines for the bias and the numbers
// that LibTorch wraps into tensors.
constexpr std::int64_t kLines = 256;

SessionOptions exactly_enough() {
  return {.budget_bytes = (1 + 6) * g_unit + kLines, .poison = true};
}

class SessionRerunsOfSize : public ::testing::TestWithParam<std::int64_t> {};

INSTANTIATE_TEST_SUITE_P(Bytes, SessionRerunsOfSize, ::testing::Values(64 << 10, 1 << 20));

TEST_P(SessionRerunsOfSize, AnOperatorThatCutsItsRoomIntoPiecesRunsInTheBytesItNeedsAtOneTime) {
  g_unit = GetParam();
  const at::Tensor x = units(1).fill_(2);
  const at::Tensor bias = at::full({}, 4.0F);
  const at::Tensor expected = call_divide_room(x, bias);
  g_runs = 0;
  Session session(exactly_enough());
  for (int step = 0; step < 4; ++step) {
    auto in_step = session.step();
    const at::Tensor result = call_divide_room(x, bias);
    EXPECT_TRUE(result.equal(expected)) << "step " << step;
  }
  // Once more in the first step, and from then on by what was learnt there.
  EXPECT_EQ(g_runs, 5);
  EXPECT_LE(session.report().peak_bytes, session.report().budget_bytes);
  EXPECT_EQ(session.report().shortage_bytes, 0);
}

TEST(SessionReruns, LessThanThatIsOutOfMemoryAndLeavesTheOperandsReadable) {
  const at::Tensor x = units(1).fill_(2);
  SessionOptions options = exactly_enough();
  options.budget_bytes -= kLines + 64;
  Session session(options);
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto in_step = session.step();
    EXPECT_THROW(call_divide_room(x, std::nullopt), c10::OutOfMemoryError);
  }
  EXPECT_EQ(x.sum().item<float>(), 2.0F * static_cast<float>(x.numel()));
  EXPECT_GE(session.report().shortage_bytes, 7 * g_unit);
}

TEST(SessionReruns, AnOperatorThatWritesItsOperandIsNotRunTwice) {
  const at::Tensor x = units(1).fill_(2);
  at::Tensor out = units(2).fill_(1);
  const auto op = operator_named<at::Tensor&(const at::Tensor&, at::Tensor&)>("divide_room_out");
  SessionOptions options = exactly_enough();
  options.budget_bytes += 2 * g_unit;
  Session session(options);
  g_runs = 0;
  {
    auto in_step = session.step();
    EXPECT_THROW(op.call(x, out), c10::OutOfMemoryError);
  }
  EXPECT_EQ(g_runs, 1);
  EXPECT_EQ(out[0].item<float>(), 2.0F);  // what the kernel did before it failed, once
}

TEST(SessionReruns, AnOperatorThatDrawsRandomNumbersIsNotRunTwice) {
  const at::Tensor x = units(1).fill_(2);
  const auto op = operator_named<at::Tensor(const at::Tensor&)>("divide_room_randomly");
  at::manual_seed(5);
  at::rand({1});
  const at::Tensor second = at::rand({1});
  SessionOptions options = exactly_enough();
  Session session(options);
  g_runs = 0;
  at::manual_seed(5);
  {
    auto in_step = session.step();
    EXPECT_THROW(op.call(x), c10::OutOfMemoryError);
  }
  EXPECT_EQ(g_runs, 1);
  EXPECT_TRUE(at::rand({1}).equal(second));
}

int g_drift = 0;

// As above, but what it asks for is another thing from call to call, at the same operand.
at::Tensor drift_in_room(const at::Tensor& x) {
  ++g_runs;
  constexpr std::array<std::array<std::int64_t, 2>, 3> kUnits = {{{2, 4}, {1, 3}, {3, 4}}};
  const auto& [first_units, second_units] = kUnits[static_cast<std::size_t>(g_drift) % 3];
  at::Tensor scratch = units(first_units).fill_(3);
  at::Tensor result = units(2).zero_();
  const float first = scratch[0].item<float>();
  scratch = at::Tensor();
  scratch = units(second_units).fill_(first);
  return result.add_(scratch.narrow(0, 0, result.numel())).add_(x[0]).mul_(1 + g_drift);
}

TORCH_LIBRARY_FRAGMENT(aten, library) { library.def("plimsoll_drift_in_room(Tensor x) -> Tensor"); }

TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("plimsoll_drift_in_room", drift_in_room); }

TEST(SessionReruns, AnOperatorWhoseRoomDriftsRunsWhateverWasLearntOfItBefore) {
  g_unit = 64 << 10;
  constexpr int kSteps = 9;
  const at::Tensor x = units(1).fill_(2);
  const auto op = operator_named<at::Tensor(const at::Tensor&)>("drift_in_room");
  std::vector<at::Tensor> expected;
  for (g_drift = 0; g_drift < kSteps; ++g_drift) expected.push_back(op.call(x));
  Session session(exactly_enough());
  g_runs = 0;
  for (g_drift = 0; g_drift < kSteps; ++g_drift) {
    auto in_step = session.step();
    const at::Tensor result = op.call(x);
    EXPECT_TRUE(result.equal(expected[static_cast<std::size_t>(g_drift)])) << "step " << g_drift;
  }
  // More than once where the layout that was learnt is another's, never more than it allocates.
  EXPECT_GT(g_runs, kSteps);
  EXPECT_LE(g_runs, 4 * kSteps);
  EXPECT_LE(session.report().peak_bytes, session.report().budget_bytes);
  EXPECT_EQ(session.report().shortage_bytes, 0);
}

}  // namespace
}  // namespace plimsoll
