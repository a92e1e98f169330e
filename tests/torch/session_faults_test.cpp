// SPDX-License-Identifier: Apache-2.0
// What goes wrong, and what must be left when it does.
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/error.h"

#include "equality.h"
#include "pointer_checks.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

// Numbers of which each knows its place, so that a byte out of place shows.
torch::Tensor numbered(std::int64_t kib, float start) {
  return torch::arange(kib * 256, torch::kFloat) + start;
}

// Under a budget of 1 MiB: two tensors of 512 KiB each fill it, so a third pushes the first out.
class SessionFaults : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  SessionOptions options{.budget_bytes = mib(1), .poison = true};
};

TEST_F(SessionFaults, ReadingAnEvictedTensorOutsideOfAStepBringsItBack) {
  Session session(options);
  auto a = numbered(256, 0);
  std::vector<torch::Tensor> others;
  {
    auto step = session.step();
    a.add_(1);
    for (int i = 0; i < 8; ++i) others.push_back(a * i);
  }
  EXPECT_GT(session.report().host_bytes, 0);
  EXPECT_EQ(a[7].item<float>(), 8.0F);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(others[static_cast<std::size_t>(i)][7].item<float>(), 8.0F * static_cast<float>(i));
    EXPECT_TRUE(others[static_cast<std::size_t>(i)].equal(a * i));
  }
  std::ostringstream text;
  ASSERT_TRUE(is_out(others[3]));
  text << others[3].narrow(0, 7, 1);
  EXPECT_THAT(text.str(), HasSubstr("24"));
  EXPECT_LE(session.report().peak_bytes, mib(1));
}

TEST_F(SessionFaults, ARawPointerToAnEvictedTensorIsOurTextNotACrash) {
  Session session(options);
  std::vector<torch::Tensor> tensors;
  {
    auto step = session.step();
    for (int i = 0; i < 8; ++i) tensors.push_back(torch::ones({64 << 10}) * i);
  }
  // Else the text is LibTorch's own.
  const std::string text = detail::can_forbid_pointers() ? "Session::pin" : "not allocated yet";
  EXPECT_THAT([&] { static_cast<void>(tensors[0].data_ptr<float>()); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr(text)));
  EXPECT_THROW(static_cast<void>(tensors[0].accessor<float, 1>()), c10::Error);
  session.pin(tensors[0]);
  float* pointer = tensors[0].data_ptr<float>();
  {
    auto step = session.step();
    for (int i = 1; i < 8; ++i) tensors[static_cast<std::size_t>(i)].add_(1);
    EXPECT_EQ(tensors[0].data_ptr<float>(), pointer);
  }
  EXPECT_EQ(pointer[5], 0.0F);
  session.unpin(tensors[0]);
}

TEST_F(SessionFaults, StrictPointersRefuseEveryRawPointerOutsideOfOperators) {
  options.strict_pointers = true;
  if (!detail::can_forbid_pointers()) {
    EXPECT_THROW(Session refused(options), Unsupported);
    return;
  }
  Session session(options);
  auto step = session.step();
  auto x = torch::ones({16});
  auto y = x + 1;
  EXPECT_THAT([&] { static_cast<void>(y.data_ptr<float>()); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("strict_pointers")));
  EXPECT_EQ(y.sum().item<float>(), 32.0F);
  session.pin(y);
  EXPECT_EQ(*y.data_ptr<float>(), 2.0F);
}

TEST_F(SessionFaults, OutOfMemoryInsideAnOperatorLosesNothingAndTheProcessGoesOn) {
  Session session(options);
  auto a = numbered(512, 1);
  const auto expected = a.clone();
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto step = session.step();
    try {
      auto b = torch::cat({a, a});
      FAIL() << "512 + 1024 KiB fitted into 1 MiB";
    } catch (const c10::OutOfMemoryError& error) {
      EXPECT_THAT(error.what(), HasSubstr("aten::cat"));
      EXPECT_THAT(error.what(), HasSubstr("limit 1048576"));
    }
    EXPECT_EQ(session.report().shortage_op, "aten::cat");
    EXPECT_GE(session.report().shortage_bytes, kib(1536));
    EXPECT_TRUE(a.equal(expected));
    auto c = a.narrow(0, 0, 1000) * 2;
    EXPECT_EQ(c[999].item<float>(), 2000.0F);
  }
  EXPECT_LE(session.report().peak_bytes, mib(1));
}

#ifndef NDEBUG
TEST_F(SessionFaults, ADebugBuildPoisonsWhatIsFreedUnasked) {
  Session session({.budget_bytes = mib(1)});
  const auto step = session.step();
  torch::Tensor freed = torch::ones({1000});
  const auto* bytes = static_cast<const unsigned char*>(freed.data_ptr());
  ASSERT_EQ(bytes[3], 0x3F);
  freed.reset();
  for (int i = 0; i < 4000; ++i) ASSERT_EQ(bytes[i], 0xFB) << i;
}
#endif

TEST_F(SessionFaults, ARequestOverTheBudgetSaysTheNumbersAndTheNextSmallerWorks) {
  Session session({.budget_bytes = mib(8), .poison = true});
  const auto step = session.step();
  const torch::Tensor kept = numbered(64, 3);
  try {
    torch::empty({mib(9)}, torch::kByte);
    FAIL() << "9 MiB fitted into 8";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("requested 9437184 bytes, live 65536, limit 8388608"));
    EXPECT_THAT(error.what(), HasSubstr("largest free 8"));
  }
  session.reset_peak();
  const torch::Tensor fits = torch::empty({mib(8) - kib(64)}, torch::kByte);
  EXPECT_EQ(session.report().peak_bytes, mib(8));
  EXPECT_EQ(session.report().host_bytes, 0);  // beside the one that was kept
  EXPECT_EQ(kept.data_ptr<float>()[5], 8.0F);
}

TEST_F(SessionFaults, AnExceptionInTheMiddleOfAStepLeavesEveryTensorReadable) {
  const auto make = [] {
    nn::Sequential model;
    for (int i = 0; i < 6; ++i) model->push_back(nn::Linear(96, 96));
    return model;
  };
  torch::manual_seed(5);
  auto stock = make();
  torch::manual_seed(5);
  auto ours = make();
  auto x = torch::randn({256, 96});
  torch::optim::SGD stock_rule(stock->parameters(), 0.1);
  torch::optim::SGD our_rule(ours->parameters(), 0.1);
  const auto train = [&](nn::Sequential& model, torch::optim::SGD& rule) {
    rule.zero_grad();
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    rule.step();
  };
  Session session(options);
  for (int i = 0; i < 5; ++i) {
    if (i == 2) {
      const auto throwing_step = [&] {
        auto step = session.step();
        auto y = ours->forward(x);
        throw std::runtime_error("user code");
      };
      EXPECT_THROW(throwing_step(), std::runtime_error);
    }
    train(stock, stock_rule);
    auto step = session.step();
    train(ours, our_rule);
  }
  for (std::size_t i = 0; i < stock->parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(stock->parameters()[i], ours->parameters()[i].clone()));
  }
}

TEST_F(SessionFaults, TensorsOutliveTheSessionInAnyOrder) {
  std::vector<torch::Tensor> kept;
  torch::Tensor view;
  {
    Session session(options);
    auto step = session.step();
    for (int i = 0; i < 8; ++i) kept.push_back(numbered(256, static_cast<float>(i)));
    view = kept[3].slice(0, 8, 16);
    kept[3].reset();
    kept[5] = kept[5] + kept[6];
  }
  EXPECT_EQ(view[0].item<float>(), 11.0F);
  EXPECT_EQ(kept[0].data_ptr<float>()[4], 4.0F);
  EXPECT_EQ(kept[5].data_ptr<float>()[0], 11.0F);
  for (auto& tensor : kept) {
    if (tensor.defined()) tensor.add_(1);
  }
  {
    Session again(options);
    auto step = again.step();
    EXPECT_EQ((kept[7] * 2)[0].item<float>(), 16.0F);
    kept.clear();
  }
  EXPECT_EQ(view[7].item<float>(), 18.0F);
}

TEST_F(SessionFaults, ASliceThatHoldsItsStorageAloneIsCountedAndFreed) {
  Session session(options);
  auto step = session.step();
  torch::Tensor slice;
  {
    auto big = numbered(384, 0);
    slice = big.slice(0, 0, 8);
  }
  auto second = slice * 1;
  // 384 KiB of which 32 bytes are in use stay alive, and have to go out for this.
  auto third = numbered(384, 0) * 1;
  EXPECT_GE(session.report().host_bytes, kib(384));
  slice.reset();
  third.reset();
  EXPECT_EQ(second[3].item<float>(), 3.0F);
  EXPECT_EQ(session.report().host_bytes, 0);
}

TEST_F(SessionFaults, OnlyOneSessionAndOneStepAtATime) {
  Session session(options);
  EXPECT_THROW(Session second(options), InvalidArgument);
  auto step = session.step();
  EXPECT_THROW(static_cast<void>(session.step()), InvalidArgument);
}

TEST_F(SessionFaults, BadOptionsAreRefusedWithTheValue) {
  EXPECT_THAT([] { Session session({.budget_bytes = 0}); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("budget_bytes is 0")));
  EXPECT_THROW(Session session({.budget_bytes = -5}), InvalidArgument);
  EXPECT_THAT([] { Session session({.budget_bytes = mib(1), .spill_folder = "/no/such/folder"}); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("/no/such/folder")));
  // Nothing was left behind: a good one opens.
  Session session(options);
}

TEST_F(SessionFaults, ABudgetBelowOneBlockOpensAndNothingFits) {
  const torch::Tensor x = torch::ones({4});
  for (const std::int64_t budget : {1, 63}) {
    Session session({.budget_bytes = budget});
    {
      auto step = session.step();
      EXPECT_THROW(x + 1, c10::OutOfMemoryError) << budget;
      step.abandon();
    }
    const SessionReport report = session.report();
    EXPECT_EQ(report.shortage_op, "aten::add");
    EXPECT_EQ(report.shortage_bytes, 64) << "the operand alone";
    EXPECT_EQ(report.peak_bytes, 0);
    EXPECT_EQ(x.sum().item<float>(), 4.0F);
  }
}

TEST_F(SessionFaults, TheHostLimitIsATypedErrorThatLosesNothing) {
  options.host_limit_bytes = kib(600);
  std::vector<torch::Tensor> kept;
  {
    Session session(options);
    auto step = session.step();
    const auto fill = [&] {
      for (int i = 0; i < 8; ++i) kept.push_back(torch::full({64 << 10}, i, torch::kFloat));
    };
    EXPECT_THAT(
        fill, ::testing::ThrowsMessage<c10::OutOfMemoryError>(HasSubstr("the host tier is full")));
    // Four in the arena and two on the host; with one gone there is room to change places.
    ASSERT_EQ(kept.size(), 6U);
    kept.pop_back();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i][9].item<float>(), static_cast<float>(i));
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].data_ptr<float>()[9], static_cast<float>(i));
  }
}

TEST_F(SessionFaults, BeyondTheHostLimitBytesGoToTheSpillFolder) {
  const auto folder = std::filesystem::path(::testing::TempDir()) /
                      ("plimsoll_spill_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  options.host_limit_bytes = kib(600);
  options.spill_folder = folder.string();
  {
    Session session(options);
    std::vector<torch::Tensor> kept;
    auto step = session.step();
    for (int i = 0; i < 16; ++i)
      kept.push_back(torch::full({64 << 10}, i, torch::kFloat) +
                     torch::arange(64 << 10, torch::kFloat));
    EXPECT_GT(session.report().file_bytes, 0);
    EXPECT_LE(session.report().host_bytes, kib(600));
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(kept[static_cast<std::size_t>(i)][9].item<float>(), static_cast<float>(i + 9));
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST_F(SessionFaults, OtherThreadsAreLeftAlone) {
  Session session(options);
  auto step = session.step();
  auto mine = torch::ones({64 << 10}) * 3;
  float sum = 0;
  std::thread other([&] {
    // 8 MiB in a process whose session has 1: not the session's.
    auto theirs = torch::ones({2 << 20}) * 2;
    sum = theirs.narrow(0, 0, 4).sum().item<float>();
  });
  other.join();
  EXPECT_EQ(sum, 8.0F);
  EXPECT_EQ(mine[5].item<float>(), 3.0F);
  EXPECT_LE(session.report().peak_bytes, mib(1));
}

TEST_F(SessionFaults, TensorsMayDieOnOtherThreads) {
  Session session(options);
  for (int round = 0; round < 20; ++round) {
    std::vector<torch::Tensor> kept;
    auto step = session.step();
    for (int i = 0; i < 8; ++i) kept.push_back(torch::ones({48 << 10}) * i);
    std::thread killer([doomed = std::move(kept)]() mutable { doomed.clear(); });
    auto x = torch::ones({48 << 10});
    for (int i = 0; i < 6; ++i) x = x + torch::ones({48 << 10});
    killer.join();
    EXPECT_EQ(x[1].item<float>(), 7.0F);
  }
}

TEST_F(SessionFaults, WorksBesideAFallbackThatLibTorchOrAnotherLibraryHasRegistered) {
  auto registration = c10::Dispatcher::singleton().registerFallback(
      c10::DispatchKey::Fake, c10::KernelFunction::makeFallthrough(), "test");
  EXPECT_EQ(interposer_self_test(), "");
  Session session(options);
  std::vector<torch::Tensor> kept;
  auto step = session.step();
  for (int i = 0; i < 8; ++i) kept.push_back(torch::ones({64 << 10}) * i);
  EXPECT_GT(session.report().host_bytes, 0);
  EXPECT_EQ(kept[2][3].item<float>(), 2.0F);
}

TEST_F(SessionFaults, AnOperatorThatPassesTheInterposerByIsNamedAndNoSessionOpens) {
  {
    const auto registration = c10::Dispatcher::singleton().registerImpl(
        {"aten::add", "Tensor"}, c10::DispatchKey::Fake, c10::KernelFunction::makeFallthrough(),
        std::nullopt, nullptr, "test");
    EXPECT_THAT(interposer_self_test(), HasSubstr("aten::add was not seen"));
    EXPECT_THAT([&] { Session session(options); },
                ::testing::ThrowsMessage<Unsupported>(HasSubstr("aten::add")));
  }
  EXPECT_EQ(interposer_self_test(), "");
  Session session(options);
  const auto step = session.step();
  const auto a = numbered(256, 0);
  EXPECT_TRUE(session.holds((a + a).storage()));
}

TEST_F(SessionFaults, HoldsNoReferenceThatAutogradOrTheUserCouldSee) {
  Session session({.budget_bytes = mib(64)});
  auto weight = torch::ones({32, 32}, torch::requires_grad());
  auto step = session.step();
  auto y = weight * 2;
  EXPECT_EQ(y.storage().use_count(), 1U);
  y.sum().backward();
  EXPECT_EQ(weight.grad().use_count(), 1U);
  EXPECT_EQ(weight.grad().storage().use_count(), 1U);
  auto gradient = weight.grad();
  weight.mutable_grad().reset();
  (weight * gradient).sum().backward();
  EXPECT_TRUE(weight.grad().equal(gradient));
}

}  // namespace
}  // namespace plimsoll
