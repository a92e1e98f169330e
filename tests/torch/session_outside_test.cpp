// SPDX-License-Identifier: Apache-2.0
// What programs do that no operator shows: raw pointers, threads, caught errors, odd schemas.
#include <cstring>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "plimsoll/base/bytes.h"

#include "equality.h"

namespace plimsoll {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kUnit = 64 << 10;  // bytes

torch::Tensor units(std::int64_t count, float value) {
  return torch::full({count * kUnit / 4}, value);
}

// Fills the arena with other things, so that all else leaves.
void press(std::int64_t count) {
  std::vector<torch::Tensor> others;
  for (std::int64_t i = 0; i < count; ++i) others.push_back(units(1, 1.0F));
}

TEST(SessionOutside, KeepsWhatIsWrittenThroughRawPointersBetweenSteps) {
  torch::Tensor batch = units(1, 0.0F);
  Session session({.budget_bytes = 6 * kUnit, .poison = true});
  for (int i = 1; i <= 5; ++i) {
    const std::vector<float> fresh(static_cast<std::size_t>(batch.numel()), static_cast<float>(i));
    batch.add_(0);  // brings it in
    std::memcpy(batch.data_ptr(), fresh.data(), batch.nbytes());
    const auto step = session.step();
    EXPECT_EQ(batch.mean().item<float>(), static_cast<float>(i));
    press(6);
    // Back from below: written out with this step's numbers.
    EXPECT_EQ(batch.mean().item<float>(), static_cast<float>(i));
  }
}

TEST(SessionOutside, KeepsWhatIsWrittenThroughAPinnedPointerInsideAStep) {
  torch::Tensor x = units(1, 1.0F);
  Session session({.budget_bytes = 6 * kUnit, .poison = true});
  const auto step = session.step();
  x.add_(0);
  press(6);
  x.add_(0).mean();  // resident, with a copy below
  session.pin(x);
  std::fill_n(x.data_ptr<float>(), x.numel(), 7.0F);
  session.unpin(x);
  press(6);
  EXPECT_EQ(x.mean().item<float>(), 7.0F);
}

TEST(SessionOutside, CountsPinsByStorage) {
  torch::Tensor x = units(1, 1.0F);
  Session session({.budget_bytes = 4 * kUnit, .poison = true});
  const auto step = session.step();
  session.pin(x);
  session.pin(x.narrow(0, 0, 8));
  const void* address = x.data_ptr();
  session.unpin(x.narrow(0, 8, 8));
  press(4);
  EXPECT_EQ(x.data_ptr(), address);
  session.unpin(x);
  press(4);
  EXPECT_TRUE(is_out(x));
}

TEST(SessionOutside, PinningMoreThanTheBudgetIsOutOfMemory) {
  torch::Tensor x = units(4, 1.0F);
  Session session({.budget_bytes = 2 * kUnit});
  EXPECT_THROW(session.pin(x), c10::OutOfMemoryError);
  EXPECT_EQ(x.mean().item<float>(), 1.0F);
}

TEST(SessionOutside, LearnsAStepInWhichAnOutOfMemoryErrorWasCaught) {
  torch::Tensor a = units(4, 1.0F);
  torch::Tensor b = units(4, 2.0F);
  Session session({.budget_bytes = 7 * kUnit, .poison = true});
  for (int i = 0; i < 4; ++i) {
    const auto step = session.step();
    a.mul_(2);
    EXPECT_THROW(torch::cat({a, b}), c10::OutOfMemoryError);
    b.mul_(2);
  }
  EXPECT_GE(session.report().steps_on_sequence, 2);
  EXPECT_EQ(a[0].item<float>(), 16.0F);
  EXPECT_EQ(b[0].item<float>(), 32.0F);
}

TEST(SessionOutside, FactoriesThatWriteIntoAnOperandAreSeenToWriteIt) {
  torch::Tensor x = units(1, 1.0F);
  torch::Tensor out = units(1, 2.0F);
  Session session({.budget_bytes = 6 * kUnit, .poison = true});
  const auto step = session.step();
  x.add_(0);
  out.add_(0);
  press(6);
  out.mean();  // resident, with a copy below
  at::full_like_out(out, x, 7);
  press(6);
  EXPECT_EQ(out.mean().item<float>(), 7.0F);
}

void write_unannounced(at::Tensor x, const at::Tensor& y) {
  x.add_(y);
  at::empty({8 * kUnit / 4});  // more than there is
}

TORCH_LIBRARY(plimsoll_outside_test, library) {
  library.def("write_unannounced", write_unannounced);  // its schema says nothing of writes
}

TEST(SessionOutside, TakesAnOperatorWithoutAnnotationsToWriteEverythingAndRunsItOnce) {
  torch::Tensor x = units(1, 1.0F);
  const torch::Tensor y = units(1, 1.0F);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("plimsoll_outside_test::write_unannounced", "")
                      .typed<void(at::Tensor, const at::Tensor&)>();
  Session session({.budget_bytes = 6 * kUnit, .poison = true});
  const auto step = session.step();
  x.add_(0);
  press(6);
  x.mean();
  EXPECT_THROW(op.call(x, y), c10::OutOfMemoryError);
  press(6);
  EXPECT_EQ(x.mean().item<float>(), 2.0F);
}

TEST(SessionOutside, AModelReadFromAFileMovesLikeAnyOther) {
  const auto make = [] {
    nn::Sequential made;
    for (int i = 0; i < 8; ++i) made->push_back(nn::Linear(96, 96));
    std::stringstream file;
    torch::save(made, file);
    nn::Sequential model;
    for (int i = 0; i < 8; ++i) model->push_back(nn::Linear(96, 96));
    torch::load(model, file);
    Program program;
    program.model = model.ptr();
    program.optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
    const auto x = torch::randn({32, 96});
    program.step = [model, x, optimizer = program.optimizer](int) mutable {
      optimizer->zero_grad();
      auto loss = model->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
    return program;
  };
  const Outcome stock = run(make, 3);
  const Outcome ours =
      run(make, 3, SessionOptions{.budget_bytes = stock.peak_bytes * 45 / 100, .poison = true});
  expect_identical(stock, ours);
  EXPECT_EQ(ours.report.foreign_bytes, 0);
  EXPECT_GT(ours.report.offloaded_bytes, 0);
}

TEST(SessionOutside, ForeignBuffersStayWhereTheyAreAndCountToTheByte) {
  std::vector<float> memory(static_cast<std::size_t>(kUnit / 4), 3.0F);
  torch::Tensor foreign = torch::from_blob(memory.data(), {kUnit / 4});
  Session session({.budget_bytes = 6 * kUnit, .poison = true});
  const auto step = session.step();
  foreign.add_(1);
  EXPECT_EQ(session.report().foreign_bytes, kUnit);
  press(8);
  EXPECT_EQ(foreign.data_ptr(), memory.data());
  EXPECT_EQ(memory[7], 4.0F);
  EXPECT_THROW(units(6, 1.0F), c10::OutOfMemoryError);  // five are left
}

TEST(SessionOutside, ForeignBuffersCountOnlyWhileTheyLive) {
  std::vector<float> memory(static_cast<std::size_t>(kUnit));  // four units
  Session session({.budget_bytes = 8 * kUnit, .poison = true});
  const auto step = session.step();
  for (int i = 0; i < 20; ++i) {
    const torch::Tensor micro = torch::from_blob(memory.data(), {kUnit / 2});
    EXPECT_EQ(micro.sum().item<float>(), 0.0F);
  }
}

TEST(SessionOutside, BackwardFromAnotherThreadGivesStocksGradientsOrOurText) {
  torch::manual_seed(3);
  nn::Linear layer(64, 64);
  const auto x = torch::randn({16, 64});
  const auto run_backward = [&] {
    layer->zero_grad();
    auto loss = layer(x).pow(2).mean();
    std::string text;
    std::thread([&] {
      try {
        loss.backward();
      } catch (const c10::Error& error) {
        text = error.what_without_backtrace();
      }
    }).join();
    return text;
  };
  ASSERT_EQ(run_backward(), "");
  const auto expected = layer->weight.grad().clone();
  for (const std::int64_t budget : {mib(4), 3 * kUnit / 2}) {
    Session session({.budget_bytes = budget, .poison = true});
    const auto step = session.step();
    const std::string text = run_backward();
    if (budget == mib(4)) {
      EXPECT_EQ(text, "") << "there is room for all of it";
    }
    if (text.empty()) {
      EXPECT_TRUE(layer->weight.grad().equal(expected));
    } else {
      EXPECT_THAT(text, ::testing::HasSubstr("Plimsoll"));
    }
  }
  EXPECT_TRUE(layer->weight.isfinite().all().item<bool>());
}

// GradScaler's way: scale the loss, look at the gradients, step only where they are finite.
TEST(SessionOutside, AScaledLossWithASkippedStepIsStocks) {
  const auto make = [] {
    nn::Sequential model(nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 8));
    Program program;
    program.model = model.ptr();
    program.optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-2);
    const auto x = torch::randn({32, 64});
    program.step = [model, x, optimizer = program.optimizer, scale = 1e38](int step) mutable {
      optimizer->zero_grad();
      auto loss = model->forward(x).pow(2).mean();
      (loss * scale).backward();
      bool finite = true;
      for (auto& parameter : model->parameters()) {
        torch::NoGradGuard no_grad;
        parameter.grad().div_(scale);
        finite = finite && parameter.grad().isfinite().all().item<bool>();
      }
      if (finite) optimizer->step();
      scale = finite ? scale : scale / 1e30;
      return loss;
    };
    return program;
  };
  const Outcome stock = run(make, 5);
  const Outcome ours =
      run(make, 5, SessionOptions{.budget_bytes = stock.peak_bytes * 70 / 100, .poison = true});
  expect_identical(stock, ours);
  EXPECT_GT(ours.report.offloaded_bytes, 0);
}

TEST(SessionOutside, ListOperatorsWriteUnderPressureAsStockDoes) {
  const auto train = [] {
    std::vector<torch::Tensor> parameters;
    std::vector<torch::Tensor> gradients;
    for (int i = 0; i < 3; ++i) {
      parameters.push_back(units(1, static_cast<float>(i)));
      gradients.push_back(units(1, 0.5F));
    }
    for (int step = 0; step < 3; ++step) {
      at::_foreach_mul_(gradients, 1.5);
      at::_foreach_add_(parameters, gradients, -0.1);
      press(4);
    }
    std::vector<float> sums;
    for (const auto& parameter : parameters) sums.push_back(parameter[5].item<float>());
    return sums;
  };
  const auto expected = train();
  Session session({.budget_bytes = 8 * kUnit, .poison = true});
  const auto step = session.step();
  EXPECT_EQ(train(), expected);
}

TEST(SessionOutside, NamesTheOperatorOfThePeakAndTheBytesAtIt) {
  Session session({.budget_bytes = 16 * kUnit});
  {
    const auto step = session.step();
    const torch::Tensor a = units(2, 1.0F);
    const torch::Tensor b = a.add(1);
    const torch::Tensor c = torch::cat({a, b});
    c.sum();
  }
  // a, b, both of them again, and the sum; a number or two that LibTorch wraps into tensors.
  EXPECT_GE(session.report().peak_bytes, 8 * kUnit + 64);
  EXPECT_LE(session.report().peak_bytes, 8 * kUnit + 192);
  EXPECT_EQ(session.report().peak_op, "aten::sum");
}

TEST(SessionOutside, AccountsForEveryByteOfTheArenaAtThePeak) {
  const auto bytes = [](std::int64_t count) {
    return torch::empty({count}, torch::TensorOptions(torch::kByte));
  };
  Session session({.budget_bytes = 4096});
  const auto step = session.step();
  const torch::Tensor a = bytes(100);
  const torch::Tensor b = bytes(200);
  const torch::Tensor both = torch::cat({a, b});
  const SessionReport report = session.report();
  EXPECT_EQ(report.peak_op, "aten::cat");
  EXPECT_EQ(report.peak_bytes, 128 + 256 + 320);
  EXPECT_EQ(report.peak_waste_bytes, report.peak_bytes - (100 + 200 + 300));
  EXPECT_EQ(report.foreign_bytes, 0);
  const torch::Tensor rest = bytes(report.budget_bytes - report.peak_bytes);  // what was free
  EXPECT_EQ(session.report().peak_bytes, 4096);
  EXPECT_EQ(session.report().peak_waste_bytes, report.peak_waste_bytes);
  EXPECT_EQ(session.report().host_bytes, 0) << "nothing had to leave";
}

TEST(SessionOutside, RecordsChunkedAndOpaqueOperatorsAmongTheEvents) {
  torch::Tensor large = units(8, 1.0F);
  Session session({.budget_bytes = 4 * kUnit, .record_events = true});
  {
    const auto step = session.step();
    large.mul_(2);  // twice the budget: in chunks
    session.run_opaque("a compiled graph", {}, [] {
      return std::vector<at::Tensor>{at::detail::empty_cpu({16}, at::kFloat, false, std::nullopt)};
    });
  }
  std::vector<std::string> names;
  for (const SessionEvent& event : session.events()) {
    EXPECT_LE(event.begin_ns, event.end_ns);
    if (event.kind == SessionEvent::Kind::kOperator) names.push_back(event.name);
  }
  EXPECT_EQ(std::count(names.begin(), names.end(), "aten::mul_"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "a compiled graph"), 1);
  EXPECT_EQ(large[9].item<float>(), 2.0F);
}

// Both settings of C++'s zero_grad: what stays between steps differs by the gradients' bytes.
TEST(SessionOutside, KeptGradientsArePersistentBytesAndDroppedOnesAreNot) {
  const auto persistent = [](bool set_to_none) {
    nn::Linear layer(64, 64);
    const auto x = torch::randn({8, 64});
    Session session({.budget_bytes = mib(4)});
    for (int i = 0; i < 2; ++i) {
      const auto step = session.step();
      layer(x).sum().backward();
      layer->zero_grad(set_to_none);
    }
    return session.report().persistent_bytes;
  };
  EXPECT_EQ(persistent(false) - persistent(true), (64 * 64 + 64) * 4);
}

// Sessions and tensors as globals, ended in either order when the process ends.
void exit_with_globals(bool session_first) {
  static torch::Tensor before;
  static std::optional<Session> session;
  static torch::Tensor after;
  if (session_first) session.emplace(SessionOptions{.budget_bytes = 4 * kUnit});
  std::atexit([] {
    const bool is_right = !after.defined() || after[3].item<float>() == 4.0F;
    if (!is_right) std::_Exit(9);
  });
  if (!session_first) session.emplace(SessionOptions{.budget_bytes = 4 * kUnit});
  {
    const auto step = session->step();
    before = units(1, 1.0F);
    after = before.add(3);
    press(4);
  }
  std::exit(0);
}

TEST(SessionOutside, TheProcessMayEndInAnyOrder) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_globals(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with_globals(false), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plimsoll
