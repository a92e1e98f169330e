// SPDX-License-Identifier: Apache-2.0
// The queues of a host device under load, for the thread sanitizer above all.
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/device/host_device.h"

namespace plimsoll::device {
namespace {

// Cells are copied in and out at random; each copy waits for the last one of its cell on the other
// queue, as the pool does. What comes out must be what went in last.
TEST(HostDeviceQueues, KeepTheOrderThatEventsGiveThem) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    HostDevice device({.delay_ns = 20'000, .delay_seed = seed});
    constexpr std::size_t kCells = 8;
    constexpr std::int64_t kBytes = 1024;
    auto* arena = static_cast<char*>(device.reserve(kCells * kBytes));
    struct Step {
      std::vector<char> bytes = std::vector<char>(kBytes);
      Event done;
      char expected = 0;
      bool is_out = false;
    };
    std::vector<Step> steps(400);
    std::vector<char> content(kCells, 0);
    std::vector<Event> last(kCells);
    for (Step& step : steps) {
      const std::size_t cell = random() % kCells;
      step.is_out = random() % 2 == 0;
      const Queue queue = step.is_out ? Queue::kCopyOut : Queue::kCopyIn;
      device.wait(queue, last[cell]);
      if (step.is_out) {
        step.expected = content[cell];
        step.done = device.copy(step.bytes.data(), arena + cell * kBytes, kBytes,
                                CopyKind::kDeviceToHost, queue);
      } else {
        content[cell] = static_cast<char>(random());
        std::memset(step.bytes.data(), content[cell], kBytes);
        step.done = device.copy(arena + cell * kBytes, step.bytes.data(), kBytes,
                                CopyKind::kHostToDevice, queue);
      }
      last[cell] = step.done;
    }
    for (const Event& event : last) device.synchronize(event);
    for (const Step& step : steps) {
      device.synchronize(step.done);
      if (!step.is_out) continue;
      for (const char byte : step.bytes) ASSERT_EQ(byte, step.expected);
    }
  }
}

TEST(HostDeviceQueues, LetAnyThreadAskAndWait) {
  HostDevice device({.delay_ns = 50'000});
  auto* arena = static_cast<char*>(device.reserve(1 << 16));
  std::vector<char> host(1 << 16, 3);
  std::vector<Event> events;
  for (int i = 0; i < 100; ++i)
    events.push_back(
        device.copy(arena, host.data(), 1 << 16, CopyKind::kHostToDevice, Queue::kCopyIn));
  std::atomic<int> asked{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (const Event& event : events) {
        device.done(event);  // any answer: the copy may be under way
        device.synchronize(event);
        if (device.done(event)) asked.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(asked.load(), 300);
  EXPECT_EQ(arena[100], 3);
}

TEST(HostDeviceQueues, FinishWhatIsQueuedBeforeTheArenaGoes) {
  std::vector<char> back(1 << 16);
  {
    HostDevice device({.delay_ns = 1'000'000});
    auto* arena = static_cast<char*>(device.reserve(1 << 16));
    device.fill(arena, 1 << 16, 9);
    for (int i = 0; i < 5; ++i)
      device.copy(back.data(), arena, 1 << 16, CopyKind::kDeviceToHost, Queue::kCopyOut);
  }
  EXPECT_EQ(back[12345], 9);
}

}  // namespace
}  // namespace plimsoll::device
