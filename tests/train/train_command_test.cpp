// SPDX-License-Identifier: Apache-2.0
// `train --against-stock` where the two sides differ: the command in this process, with a hand on
// the side under the budget.
#include <cstring>

#include <gmock/gmock.h>
#include <torch/types.h>

#include "command_run.h"
#include "torch_commands.h"

namespace plimsoll::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

torch::Tensor last_of(train::Trainer& trainer) { return trainer.model().parameters().back(); }

// Turns the last bit of one weight behind step `chosen`; of none behind step 0.
TestingAfterStep turn_a_bit_behind_step(std::int64_t chosen) {
  return [chosen](std::int64_t step, train::Trainer& ours) {
    if (step != chosen) return;
    const torch::NoGradGuard no_grad;
    torch::Tensor weight = last_of(ours);
    auto value = weight[2].item<float>();
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits ^= 1U;
    std::memcpy(&value, &bits, sizeof bits);
    weight[2].fill_(value);
  };
}

CommandRun train(const std::string& level, TestingAfterStep hand) {
  return run({"train", "mlp:layers=1,dim=16,image=8", "--batch", "4", "--steps", "3",
              "--against-stock", "--budget", "64MiB", "--level", level, "--json", "-"},
             [&](Commands& commands) { commands.push_back(make_train_command(std::move(hand))); });
}

class AgainstStock : public ::testing::TestWithParam<std::string> {};

TEST_P(AgainstStock, WithoutAHandOnItTheRunIsIdentical) {
  const CommandRun result = train(GetParam(), turn_a_bit_behind_step(0));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.json()["identical"], true);
  EXPECT_TRUE(result.json()["first_difference"].is_null());
}

TEST_P(AgainstStock, OneBitOfOneTensorIsNamedAndTheExitCodeIs1) {
  const CommandRun result = train(GetParam(), turn_a_bit_behind_step(3));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.json()["identical"], false);
  const std::string difference = result.json()["first_difference"];
  EXPECT_THAT(difference,
              MatchesRegex("parameter [a-z_.0-9]+bias differs at element 2: .+ against .+"));
  EXPECT_THAT(result.err, HasSubstr("NOT identical to stock: " + difference));
}

TEST_P(AgainstStock, ALossThatDiffersIsNamedWithItsStepAndTheExitCodeIs1) {
  const CommandRun result = train(GetParam(), [](std::int64_t step, train::Trainer& ours) {
    const torch::NoGradGuard no_grad;
    if (step == 1) last_of(ours)[2].add_(1);
  });
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.json()["identical"], false);
  EXPECT_THAT(result.json()["first_difference"].get<std::string>(),
              MatchesRegex("the loss of step 2 is .+ against .+"));
}

INSTANTIATE_TEST_SUITE_P(Levels, AgainstStock, ::testing::Values("allocator", "eager"),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace plimsoll::cli::testing
