// SPDX-License-Identifier: Apache-2.0
// A session asks for no wait that it does not need: with any single one left out, the checker has
// something to say. Virtual time makes the runs the same on every machine.
#include <optional>
#include <string>

#include "plimsoll/device/fault_plan.h"
#include "plimsoll/session.h"

#include "device_fixture.h"

namespace plimsoll::simgpu {
namespace {

class SessionMutations : public OnDevice, public ::testing::WithParamInterface<Overlap> {
 protected:
  // Operators' unused workspaces would be waited for and then not be written.
  void SetUp() override {
    OnDevice::SetUp();
    install({.has_workspaces = false});
    train();  // the first calls of each signature wait for the device
  }

  // Four steps of a session that moves a good part of what the step touches.
  static SessionReport train() {
    torch::manual_seed(5);
    torch::nn::Sequential model;
    for (int i = 0; i < 6; ++i) {
      model->push_back(torch::nn::Linear(32, 32));
      model->push_back(torch::nn::ReLU());
    }
    model->to(sim());
    torch::optim::SGD rule(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const torch::Tensor x = torch::randn({64, 32}).to(sim());
    guard_impl().synchronizeDevice(0);
    start_timeline();
    SessionReport report;
    {
      Session session({.budget_bytes = 100'000, .device = sim(), .overlap = GetParam()});
      for (int i = 0; i < 4; ++i) {
        const Step step = session.step();
        rule.zero_grad();
        model->forward(x).pow(2).mean().backward();
        rule.step();
      }
      report = session.report();
    }
    stop_timeline();
    guard_impl().synchronizeDevice(0);
    return report;
  }
};

TEST_P(SessionMutations, EverySingleWaitIsMissed) {
  const SessionReport report = train();
  EXPECT_GT(report.offloaded_bytes, 0);
  EXPECT_GT(report.prefetched_bytes, 0);
  EXPECT_TRUE(report.slid_bytes > 0 || GetParam() == Overlap::kOn);
  ASSERT_TRUE(take_races().empty());
  std::string silent;
  std::int64_t for_the_unseen = 0;
  std::int64_t waits = 0;
  for (;; ++waits) {
    bool is_copy_for_compute = false;
    const Mutation one([&](const SyncPoint& point) {
      if (point.kind != SyncKind::kStreamWait || point.ordinal != waits) return false;
      is_copy_for_compute = point.awaited == default_stream();
      return true;
    });
    train();
    if (one.left_out() == 0) break;
    if (!take_races().empty()) continue;
    // A program that ends a tensor may have used it by a kernel of its own first. This one has not.
    if (GetParam() == Overlap::kOn && is_copy_for_compute)
      ++for_the_unseen;
    else
      silent += " " + std::to_string(waits);
  }
  EXPECT_GT(waits, 40);
  EXPECT_EQ(silent, "") << "of " << waits << " waits; these are redundant";
  EXPECT_LE(for_the_unseen, 8);
}

// What those waits are for.
TEST_P(SessionMutations, WorkThatIsNotSeenIsWaitedForWhenItsMemoryIsFetchedInto) {
  constexpr std::int64_t kElements = 4096;
  const auto run = [] {
    Session session(
        {.budget_bytes = 3 * kElements * 4 + 2048, .device = sim(), .overlap = GetParam()});
    std::vector<torch::Tensor> kept;
    for (int i = 0; i < 4; ++i) kept.push_back(torch::full({kElements}, 1.0F, on_sim()));
    torch::Tensor result = torch::empty({kElements}, on_sim());
    const torch::Tensor small = torch::ones({4}, on_sim());
    start_timeline();
    for (int step = 0; step < 4; ++step) {
      const Step open = session.step();
      for (const torch::Tensor& tensor : kept) {
        torch::Tensor used = torch::full({kElements}, 2.0F, on_sim());
        {
          const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
          torch::mul_out(result, used, used);
        }
        used.reset();
        for (int i = 0; i < 4; ++i) small.add_(1);
        tensor.add_(1);
      }
    }
    stop_timeline();
    guard_impl().synchronizeDevice(0);
  };
  run();
  EXPECT_TRUE(take_races().empty());
  const Mutation all([](const SyncPoint& point) {
    return point.kind == SyncKind::kStreamWait && point.awaited == default_stream();
  });
  run();
  int of_the_unseen = 0;
  for (const Race& race : take_races())
    of_the_unseen += race.text().find("aten::mul.out") != std::string::npos ? 1 : 0;
  // Nothing is fetched ahead where copies are made when they are needed.
  EXPECT_EQ(of_the_unseen > 0, GetParam() == Overlap::kOn);
}

// The kinds of waits, by who waits for whom; streams of copies are not the compute stream.
struct WaitKind {
  const char* name;
  bool is_compute_waiting;
};

TEST_P(SessionMutations, EveryKindOfWaitIsMissed) {
  for (const WaitKind& kind :
       {WaitKind{"compute for copies", true}, WaitKind{"copies for compute", false}}) {
    SCOPED_TRACE(kind.name);
    const Mutation all([&](const SyncPoint& point) {
      return point.kind == SyncKind::kStreamWait &&
             (point.waiting == default_stream()) == kind.is_compute_waiting;
    });
    train();
    EXPECT_GT(all.left_out(), 10);
    EXPECT_GT(take_races().size(), 3U);
  }
}

INSTANTIATE_TEST_SUITE_P(Copies, SessionMutations, ::testing::Values(Overlap::kOn, Overlap::kOff),
                         [](const auto& info) {
                           return info.param == Overlap::kOn ? "Ahead" : "WhenNeeded";
                         });

// A copy that is left out is seen in what the step leaves, whichever it is.
TEST_P(SessionMutations, EverySingleCopyIsMissed) {
  const auto run = [](device::FaultPlan* faults) {
    torch::manual_seed(5);
    std::vector<torch::Tensor> made = {torch::randn({64, 64}).to(sim()),
                                       torch::randn({64, 64}).to(sim())};
    {
      Session session({.budget_bytes = 5 * 64 * 64 * 4,
                       .device = sim(),
                       .overlap = GetParam(),
                       .poison = true,
                       .testing_faults = faults});
      const Step step = session.step();
      for (int i = 0; i < 8; ++i) made.push_back(made.back().matmul(made.front()).tanh());
      torch::Tensor sum = torch::zeros({64, 64}, on_sim());
      for (int i = 9; i >= 2; --i) sum += made[static_cast<std::size_t>(i)] * i;
      made.push_back(sum);
    }
    return torch::cat(made).cpu();
  };
  const torch::Tensor whole = run(nullptr);
  for (const device::FaultKind kind :
       {device::FaultKind::kLateCopyOut, device::FaultKind::kLateCopyIn}) {
    std::string silent;
    std::int64_t copies = 0;
    for (;; ++copies) {
      device::FaultPlan faults;
      faults.fail(kind, copies + 1);
      const torch::Tensor result = run(&faults);
      if (faults.fired() == 0) break;
      if (same_bits(whole, result)) silent += " " + std::to_string(copies);
    }
    EXPECT_GT(copies, 4);
    EXPECT_EQ(silent, "") << device::fault_kind_name(kind) << " of " << copies;
  }
  take_races();  // a copy out that is missing leaves the waits for it without their reason
}

// A stream of the program's own.
class SessionStreams : public OnDevice {
 protected:
  static constexpr std::int64_t kElements = 4096;
  static torch::Tensor make(float value) { return torch::full({kElements}, value, on_sim()); }
  void SetUp() override {
    OnDevice::SetUp();
    // The first calls of each signature wait for the device.
    torch::Tensor warm = make(1);
    torch::mul_out(warm, warm, warm);
    warm.add_(1);
    guard_impl().synchronizeDevice(0);
  }
};

TEST_F(SessionStreams, AStreamThatTakesOverWaitsForTheOneBefore) {
  const c10::Stream side = pool_stream();
  const auto alternate = [&] {
    Session session({.budget_bytes = 1 << 20, .device = sim()});
    const Step step = session.step();
    for (int i = 0; i < 4; ++i) {
      make(1);  // its place is the next one's
      const c10::StreamGuard guard(side);
      make(2);
    }
  };
  alternate();
  EXPECT_TRUE(take_races().empty());
  const Mutation all(SyncKind::kStreamWait);
  alternate();
  EXPECT_GT(all.left_out(), 6);
  EXPECT_FALSE(take_races().empty());
}

TEST_F(SessionStreams, HostMemoryIsFreedWhenNoCopyUsesItAnyMore) {
  // Nothing but the session keeps it until then.
  install({.guards_pinned_frees = false});
  const auto run = [] {
    Session session({.budget_bytes = 3 << 20, .device = sim(), .host_limit_bytes = (9 << 20) / 4});
    const Step step = session.step();
    for (int i = 0; i < 4; ++i) {
      torch::Tensor used = torch::ones({(256 + 80 * i) << 10}, on_sim());
      torch::ones({640 << 10}, on_sim());  // drives it out
      used.add_(1);
      used.reset();  // its host memory is of no use to the next one
    }
  };
  run();
  EXPECT_TRUE(take_races().empty());
  const Mutation all(SyncKind::kStreamSynchronize);
  run();
  EXPECT_GT(all.left_out(), 0);
  std::string races;
  for (const Race& race : take_races()) races += race.text() + "\n";
  EXPECT_NE(races.find("freeing pinned memory"), std::string::npos) << races;
}

// A kernel that no session sees, on a side stream, uses a tensor which then ends, or is evicted.
class RecordedStreams : public SessionStreams, public ::testing::WithParamInterface<bool> {
 protected:
  // Whether the kernel read what it should.
  bool use_on_a_side_stream(bool records) {
    const bool evicts = GetParam();
    const c10::Stream side = pool_stream();
    torch::Tensor result = torch::empty({kElements}, on_sim());
    Session session({.budget_bytes = 3 * kElements * 4, .device = sim()});
    {
      const Step step = session.step();
      torch::Tensor used = make(3);
      c10::Event made(c10::kPrivateUse1);
      made.record(default_stream());
      made.block(side);
      {
        const c10::StreamGuard guard(side);
        const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
        torch::mul_out(result, used, used);
      }
      if (records) used.record_stream(side);
      if (!evicts) used.reset();
      const torch::Tensor a = make(5);
      const torch::Tensor b = make(6);
      const torch::Tensor c = make(7);  // only now has all of the budget been used
    }
    guard_impl().synchronizeDevice(0);
    return torch::equal(result.cpu(), torch::full({kElements}, 9.0F));
  }
};

TEST_P(RecordedStreams, IsWaitedForBeforeItsMemoryIsUsedAgain) {
  EXPECT_TRUE(use_on_a_side_stream(true));
  EXPECT_TRUE(take_races().empty());
}

TEST_P(RecordedStreams, WouldBeMissed) {
  use_on_a_side_stream(false);
  EXPECT_FALSE(take_races().empty());
}

INSTANTIATE_TEST_SUITE_P(AfterIt, RecordedStreams, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "IsEvicted" : "Ends"; });

}  // namespace
}  // namespace plimsoll::simgpu
