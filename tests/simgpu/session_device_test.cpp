// SPDX-License-Identifier: Apache-2.0
// What a session on the device does besides training: other devices, threads and streams, results
// on the host, errors, its end; and the allocator with a limit (level 0).
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/error.h"
#include "plimsoll/session.h"

#include "device_fixture.h"
#include "session_runs.h"
#include "simgpu/stream_hold.h"

namespace plimsoll::simgpu {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kElements = 4096;
constexpr std::int64_t kBytes = kElements * 4;

torch::Tensor make(float value, int device = 0) {
  return torch::full({kElements}, value, on_sim(device));
}

bool all_are(const torch::Tensor& tensor, float value) {
  return torch::equal(tensor.detach().cpu(), torch::full({kElements}, value));
}

class SessionOnDevice : public OnDevice {
 protected:
  void TearDown() override {
    install();  // the usual capacity
    OnDevice::TearDown();
  }
  static SessionOptions blocks(int count, int device = 0) {
    return {.budget_bytes = count * kBytes, .device = sim(device)};
  }
};

// --- Devices, threads and streams ---------------------------------------------------------------

TEST_F(SessionOnDevice, HoldsTheSecondDevice) {
  const TrainingRun run{.model = small_model("resnet18")};
  Outcome stock;
  const std::int64_t peak = stock_peak_bytes(run, stock);
  const Budgeted inside = train_within(run, {.budget_bytes = peak / 3}, 1);
  EXPECT_EQ(first_difference(stock, inside.outcome), "");
  EXPECT_GT(inside.report.offloaded_bytes, 0);
}

TEST_F(SessionOnDevice, LeavesTheOtherDeviceAlone) {
  Session session(blocks(3, 1));
  const std::int64_t before = memory_counts(0).live_bytes;
  {
    const Step step = session.step();
    const torch::Tensor there = make(1, 0);
    std::vector<torch::Tensor> here;
    for (int i = 0; i < 6; ++i) here.push_back(make(static_cast<float>(i), 1) + there.to(sim(1)));
    EXPECT_FALSE(session.holds(there.storage()));
    EXPECT_EQ(memory_counts(0).live_bytes, before + kBytes);
    for (int i = 0; i < 6; ++i) {
      EXPECT_TRUE(session.holds(here[static_cast<std::size_t>(i)].storage()));
      EXPECT_TRUE(all_are(here[static_cast<std::size_t>(i)], static_cast<float>(i) + 1));
      EXPECT_TRUE(all_are(here[static_cast<std::size_t>(i)].to(sim(0)), static_cast<float>(i) + 1));
    }
    EXPECT_TRUE(all_are(there, 1));
  }
  EXPECT_GT(session.report().offloaded_bytes, 0);
}

TEST_F(SessionOnDevice, LeavesOtherThreadsAlone) {
  Session session(blocks(3));
  std::vector<torch::Tensor> ours;
  torch::Tensor theirs;
  const Step step = session.step();
  std::thread other([&] {
    theirs = make(40);
    for (int i = 0; i < 50; ++i) theirs = theirs + 1 - make(1);
    guard_impl().synchronizeDevice(0);
  });
  for (int i = 0; i < 30; ++i) ours.push_back(make(static_cast<float>(i)).add_(1));
  other.join();
  EXPECT_FALSE(session.holds(theirs.storage()));
  EXPECT_TRUE(all_are(theirs, 40));
  for (int i = 0; i < 30; ++i)
    EXPECT_TRUE(all_are(ours[static_cast<std::size_t>(i)], static_cast<float>(i) + 1));
  // What the session holds may end on any thread, resident or not.
  std::thread([tensors = std::move(ours)]() mutable { tensors.clear(); }).join();
}

TEST_F(SessionOnDevice, FollowsTheProgramFromStreamToStream) {
  Session session(blocks(4));
  const c10::Stream side = pool_stream();
  const Step step = session.step();
  std::vector<torch::Tensor> made;
  for (int i = 0; i < 12; ++i) {
    const bool is_aside = i % 3 == 1;
    const c10::StreamGuard guard(is_aside ? side : default_stream());
    made.push_back(make(static_cast<float>(i)));
    if (i > 0) made.back().add_(made[static_cast<std::size_t>(i - 1)]);
  }
  float sum = 0;
  for (int i = 0; i < 12; ++i) {
    sum += static_cast<float>(i);
    EXPECT_TRUE(all_are(made[static_cast<std::size_t>(i)], sum));
  }
}

TEST_F(SessionOnDevice, GradientsCrossStreams) {
  // Forward on two streams; the engine follows them backward.
  const auto run = [] {
    const c10::Stream side = pool_stream();
    torch::Tensor x = make(2).requires_grad_(true);
    torch::Tensor y;
    {
      c10::Event ready(c10::kPrivateUse1);
      ready.record(default_stream());
      ready.block(side);
      const c10::StreamGuard guard(side);
      y = (x * x).tanh();
    }
    c10::Event done(c10::kPrivateUse1);
    done.record(side);
    done.block(default_stream());
    (y * x).sum().backward();
    return x.grad();
  };
  const torch::Tensor stock = run();
  Session session(blocks(6));
  for (int i = 0; i < 3; ++i) {
    const Step step = session.step();
    EXPECT_TRUE(same_bits(stock, run()));
  }
}

// --- Results on the host ------------------------------------------------------------------------

TEST_F(SessionOnDevice, ReadsOnTheHostWaitForTheirBytes) {
  Session session(blocks(3));
  const Step step = session.step();
  std::vector<torch::Tensor> made;
  for (int i = 0; i < 8; ++i) made.push_back(make(static_cast<float>(i)));
  EXPECT_EQ(made[0][7].item<float>(), 0.0F);  // evicted long ago
  EXPECT_EQ(made[1].sum().item<float>(), static_cast<float>(kElements));
  EXPECT_TRUE(made[2].equal(made[2].clone()));
}

TEST_F(SessionOnDevice, CopiesToPinnedMemoryGoOnWhileTheirSourceLeaves) {
  Session session(blocks(3));
  const torch::Tensor host = torch::empty({kElements}, torch::TensorOptions().pinned_memory(true));
  const Step step = session.step();
  const torch::Tensor source = make(7);
  host.copy_(source, true);
  c10::Event copied(c10::kPrivateUse1);
  copied.record(default_stream());
  std::vector<torch::Tensor> others;
  for (int i = 0; i < 4; ++i) others.push_back(make(1));
  copied.synchronize();
  EXPECT_TRUE(torch::equal(host, torch::full({kElements}, 7.0F)));
  EXPECT_TRUE(all_are(source, 7));
}

TEST_F(SessionOnDevice, StreamsWhatIsLargerThanTheBudget) {
  Session session(blocks(3));
  const torch::Tensor large = torch::ones({8 * kElements}, on_sim());
  const torch::Tensor other = torch::full({8 * kElements}, 2.0F, on_sim());
  {
    const Step step = session.step();
    for (int i = 0; i < 3; ++i) large.add_(other);  // in chunks
  }
  EXPECT_LE(session.report().peak_bytes, 3 * kBytes);
  EXPECT_GE(session.report().prefetched_bytes, 3 * 2 * 8 * kBytes);
  EXPECT_TRUE(torch::equal(large.cpu(), torch::full({8 * kElements}, 7.0F)));
}

TEST_F(SessionOnDevice, CodeThatIsNotSeenMayChangeTheStream) {
  Session session(blocks(3));
  const c10::Stream side = pool_stream();
  for (int i = 0; i < 3; ++i) {
    const Step step = session.step();
    const torch::Tensor in = make(3);
    std::vector<torch::Tensor> others = {make(1), make(2)};
    const auto out = session.run_opaque("the program's own", {in}, [&] {
      c10::Event ready(c10::kPrivateUse1);
      ready.record(default_stream());
      ready.block(side);
      const c10::StreamGuard guard(side);
      torch::Tensor squared = in * in;  // where others[0] was
      c10::Event done(c10::kPrivateUse1);
      done.record(side);
      done.block(default_stream());
      return std::vector<torch::Tensor>{squared};
    });
    EXPECT_TRUE(all_are(out[0], 9));
    EXPECT_TRUE(all_are(others[0], 1));
  }
}

// --- Errors -------------------------------------------------------------------------------------

TEST_F(SessionOnDevice, OutOfMemoryInTheMiddleOfAStepLosesNothing) {
  Session session(blocks(3));
  const torch::Tensor kept = make(3);
  {
    const Step step = session.step();
    kept.add_(1);
    EXPECT_THROW(torch::empty({4 * kElements}, on_sim()), c10::OutOfMemoryError);
    EXPECT_THROW(torch::cat({kept, kept, kept}), c10::OutOfMemoryError);
    kept.add_(1);
  }
  EXPECT_TRUE(all_are(kept, 5));
  EXPECT_GE(session.report().shortage_bytes, 4 * kBytes);
  EXPECT_LE(session.report().peak_bytes, 3 * kBytes);
}

TEST_F(SessionOnDevice, AnExceptionInTheProgramLosesNothing) {
  Session session(blocks(3));
  std::vector<torch::Tensor> made;
  try {
    const Step step = session.step();
    for (int i = 0; i < 6; ++i) made.push_back(make(static_cast<float>(i)));
    throw std::runtime_error("the program's own");
  } catch (const std::runtime_error&) {
  }
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(all_are(made[static_cast<std::size_t>(i)], static_cast<float>(i)));
}

TEST_F(SessionOnDevice, SaysWhichDevicesItCannotHold) {
  EXPECT_THROW(Session({.budget_bytes = kBytes, .device = c10::Device(c10::kCUDA, 0)}),
               Unsupported);
  EXPECT_THROW(Session({.budget_bytes = kBytes, .device = sim(7)}), InvalidArgument);
  EXPECT_THROW(Session({.budget_bytes = 0, .device = sim()}), InvalidArgument);
  install({.capacity_bytes = 4 * kBytes});
  EXPECT_THROW(Session(blocks(5)), DeviceOutOfMemory);
  Session(blocks(2));  // nothing is left behind
}

// --- The end ------------------------------------------------------------------------------------

TEST_F(SessionOnDevice, GivesEverythingBackWhenItEnds) {
  const std::int64_t before = memory_counts(0).live_bytes;
  std::vector<torch::Tensor> made;
  {
    Session session(blocks(3));
    const Step step = session.step();
    for (int i = 0; i < 6; ++i) made.push_back(make(static_cast<float>(i)));
  }
  EXPECT_EQ(memory_counts(0).live_bytes, before + 6 * kBytes) << "the arena is gone";
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(all_are(made[static_cast<std::size_t>(i)], static_cast<float>(i)));
}

TEST_F(SessionOnDevice, KeepsInTheArenaWhatTheDeviceHasNoRoomFor) {
  guard_impl().synchronizeDevice(0);
  empty_cache();
  std::vector<torch::Tensor> made;
  {
    install({.capacity_bytes = memory_counts(0).live_bytes + 5 * kBytes});
    Session session(blocks(4));
    const Step step = session.step();
    for (int i = 0; i < 5; ++i) made.push_back(make(static_cast<float>(i)));
  }
  // One beside the arena, four in it.
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(all_are(made[static_cast<std::size_t>(i)], static_cast<float>(i)));
  // The arena ends with the last of them, which does not wait for what the device still does.
  {
    const StreamHold hold(default_stream());
    made.clear();
  }
  install();
  EXPECT_LT(memory_counts(0).live_bytes, 4 * kBytes);
}

TEST_F(SessionOnDevice, SaysWhatHasNoRoomAnywhereWhenItEnds) {
  guard_impl().synchronizeDevice(0);
  empty_cache();
  std::vector<torch::Tensor> made;
  {
    install({.capacity_bytes = memory_counts(0).live_bytes + 3 * kBytes});
    Session session(blocks(3));
    const Step step = session.step();
    for (int i = 0; i < 5; ++i) made.push_back(make(static_cast<float>(i)));
  }
  int lost = 0;
  for (int i = 0; i < 5; ++i) {
    try {
      EXPECT_TRUE(all_are(made[static_cast<std::size_t>(i)], static_cast<float>(i)));
    } catch (const c10::Error& error) {
      // Releases that cannot forbid pointers for a time leave it to the device to say so.
      EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr("found no room when its session ended"),
                                                 HasSubstr("whose storage has no memory")));
      ++lost;
    }
  }
  EXPECT_EQ(lost, 2);
}

TEST_F(SessionOnDevice, TwoSessionsInTurnHoldTheSameTensors) {
  const torch::Tensor kept = make(1);
  for (int round = 0; round < 3; ++round) {
    Session session(blocks(3, 0));
    const Step step = session.step();
    kept.add_(1);
    for (int i = 0; i < 4; ++i) make(static_cast<float>(i)).add_(kept);
  }
  EXPECT_TRUE(all_are(kept, 4));
}

// Whatever is destroyed first when the process exits, it exits in peace.
class SessionAtExit : public SessionOnDevice {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SessionAtExit, TensorsMayOutliveIt) {
  EXPECT_EXIT(
      {
        install();
        static std::vector<torch::Tensor> tensors;
        static Session session(blocks(2));
        const Step step = session.step();
        for (int i = 0; i < 4; ++i) tensors.push_back(make(1));
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(SessionAtExit, ItMayOutliveTensors) {
  EXPECT_EXIT(
      {
        install();
        static auto* session = new Session(blocks(2));
        static std::vector<torch::Tensor> tensors;
        {
          const Step step = session->step();
          for (int i = 0; i < 4; ++i) tensors.push_back(make(1));
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// --- Level 0 ------------------------------------------------------------------------------------

TEST_F(SessionOnDevice, TheAllocatorLimitsAndCountsADevice) {
  install({.has_workspaces = false});
  install_allocator({.device = sim(1), .limit_bytes = 3 * kBytes});
  reset_allocator_statistics(sim(1));
  {
    const torch::Tensor a = make(1, 1);
    const torch::Tensor b = a + 1;
    const torch::Tensor other = make(1, 0);  // is not counted
    EXPECT_EQ(allocator_statistics(sim(1)).live_bytes, 2 * kBytes);
    try {
      torch::cat({a, b});
      FAIL() << "above the limit";
    } catch (const c10::OutOfMemoryError& error) {
      EXPECT_THAT(error.what(), HasSubstr("out of memory in aten::cat: requested"));
    }
    EXPECT_TRUE(all_are(b, 2));
  }
  const AllocatorStatistics all = allocator_statistics(sim(1));
  EXPECT_EQ(all.live_bytes, 0);
  EXPECT_EQ(all.peak_bytes, 2 * kBytes);
  EXPECT_EQ(all.refused, 1);
  ASSERT_FALSE(peak_owners(1, sim(1)).empty());
  EXPECT_EQ(peak_owners(1, sim(1))[0].bytes, kBytes);
  EXPECT_EQ(allocator_statistics().peak_bytes, 0) << "the CPU's account is another";
  EXPECT_THROW(install_allocator({.device = sim(1), .plan = true}), Unsupported);
  EXPECT_THROW(install_allocator({.device = c10::Device(c10::kCUDA, 0)}), Unsupported);
  install_allocator({.device = sim(1)});  // no limit again
}

TEST_F(SessionOnDevice, ASessionWorksBesideACountingAllocator) {
  install_allocator({.device = sim(0)});
  const std::int64_t before = allocator_statistics(sim(0)).live_bytes;
  const torch::Tensor kept = make(1);
  {
    Session session(blocks(3));
    const Step step = session.step();
    kept.add_(1);
    for (int i = 0; i < 4; ++i) make(static_cast<float>(i)).add_(kept);
  }
  EXPECT_TRUE(all_are(kept, 2));
  EXPECT_EQ(allocator_statistics(sim(0)).live_bytes, before + kBytes);
}

}  // namespace
}  // namespace plimsoll::simgpu
