// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/device/host_device.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::device {
namespace {

std::vector<int> counting(std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(HostDevice, CopiesInQueueOrderAndSignalsEvents) {
  HostDevice device({.delay_ns = 100'000});
  auto* arena = static_cast<int*>(device.reserve(1 << 20));
  const std::vector<int> source = counting(1000);
  std::vector<int> back(1000);
  const auto bytes = static_cast<std::int64_t>(1000 * sizeof(int));
  const Event in =
      device.copy(arena, source.data(), bytes, CopyKind::kHostToDevice, Queue::kCopyIn);
  device.wait(Queue::kCopyOut, in);
  const Event out =
      device.copy(back.data(), arena, bytes, CopyKind::kDeviceToHost, Queue::kCopyOut);
  device.synchronize(out);
  EXPECT_TRUE(device.done(in));
  EXPECT_TRUE(device.done(out));
  EXPECT_EQ(back, source);
}

TEST(HostDevice, WaitsOnTheComputeQueueByBlockingTheHost) {
  HostDevice device({.delay_ns = 1'000'000});
  auto* arena = static_cast<int*>(device.reserve(4096));
  const std::vector<int> source = counting(100);
  const Event in = device.copy(arena, source.data(), 400, CopyKind::kHostToDevice, Queue::kCopyIn);
  device.wait(Queue::kCompute, in);
  EXPECT_EQ(arena[99], 100);
}

TEST(HostDevice, SpreadsBlockingCopiesOverAGivenParallelFor) {
  int calls = 0;
  HostDeviceOptions options;
  options.parallel_for = [&](std::int64_t count, const auto& body) {
    ++calls;
    for (std::int64_t end = count; end > 0; end -= std::min<std::int64_t>(end, 77'777))
      body(end - std::min<std::int64_t>(end, 77'777), end);
  };
  HostDevice device(options);
  auto* arena = static_cast<int*>(device.reserve(8 << 20));
  const std::vector<int> source = counting(1'000'003);
  const auto bytes = static_cast<std::int64_t>(source.size() * sizeof(int));
  device.copy_blocking(arena, source.data(), bytes, CopyKind::kHostToDevice);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), arena));
}

TEST(HostDevice, CopiesWithItsOwnThreadsAndOverOverlaps) {
  for (const int threads : {1, 2, 3}) {
    HostDevice device({.threads = threads});
    auto* arena = static_cast<int*>(device.reserve(8 << 20));
    const std::vector<int> source = counting(1'000'003);
    const auto bytes = static_cast<std::int64_t>(source.size() * sizeof(int));
    device.copy_blocking(arena + 100, source.data(), bytes, CopyKind::kHostToDevice);
    device.copy_blocking(arena, arena + 100, bytes, CopyKind::kDeviceToDevice);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), arena));
    device.copy_blocking(arena + 77, arena, bytes, CopyKind::kDeviceToDevice);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), arena + 77));
    // Overlaps longer than what one thread copies, both ways.
    device.copy_blocking(arena + 300'000, arena + 77, bytes, CopyKind::kDeviceToDevice);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), arena + 300'000));
    device.copy_blocking(arena + 100'001, arena + 300'000, bytes, CopyKind::kDeviceToDevice);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), arena + 100'001));
  }
}

TEST(HostDevice, ReportsALateFailureAtTheEventOfThatCopyOnly) {
  FaultPlan faults;
  HostDeviceOptions options;
  options.faults = &faults;
  HostDevice device(options);
  auto* arena = static_cast<int*>(device.reserve(4096));
  const std::vector<int> source = counting(100);
  faults.fail(FaultKind::kLateCopyIn, 2);
  std::vector<Event> events;
  for (int i = 0; i < 3; ++i)
    events.push_back(
        device.copy(arena, source.data(), 400, CopyKind::kHostToDevice, Queue::kCopyIn));
  EXPECT_NO_THROW(device.synchronize(events[0]));
  EXPECT_THROW(device.synchronize(events[1]), DeviceError);
  EXPECT_THROW(device.synchronize(events[1]), DeviceError);
  EXPECT_NO_THROW(device.synchronize(events[2]));
}

TEST(HostDevice, FailsTheNthCallOfAKindOnceAndDoesNothingThen) {
  FaultPlan faults;
  HostDeviceOptions options;
  options.faults = &faults;
  HostDevice device(options);
  faults.fail(FaultKind::kReserve, 1);
  EXPECT_THROW(device.reserve(4096), DeviceError);
  auto* arena = static_cast<int*>(device.reserve(4096));
  int value = 5;
  faults.fail(FaultKind::kCopyIn, 2);
  device.copy_blocking(arena, &value, 4, CopyKind::kHostToDevice);
  value = 6;
  EXPECT_THROW(device.copy_blocking(arena, &value, 4, CopyKind::kHostToDevice), DeviceError);
  EXPECT_EQ(arena[0], 5);
  device.copy_blocking(arena, &value, 4, CopyKind::kHostToDevice);
  EXPECT_EQ(arena[0], 6);
  EXPECT_EQ(faults.calls(FaultKind::kCopyIn), 3);
  faults.fail(FaultKind::kAllocateHost, 1);
  EXPECT_THROW(device.allocate_host(4096), HostOutOfMemory);
  faults.fail(FaultKind::kRecord, 1);
  EXPECT_THROW(device.record(Queue::kCopyIn), DeviceError);
  faults.fail(FaultKind::kWait, 1);
  EXPECT_THROW(device.wait(Queue::kCopyIn, Event{}), DeviceError);
  EXPECT_EQ(faults.fired(), 5);
}

TEST(HostDevice, RefusesWhatMakesNoSense) {
  EXPECT_THROW(HostDevice({.alignment_bytes = 48}), InvalidArgument);
  EXPECT_THROW(HostDevice({.threads = 0}), InvalidArgument);
  HostDevice device;
  EXPECT_THROW(device.reserve(0), InvalidArgument);
  EXPECT_THROW(device.reserve(std::int64_t{1} << 62), DeviceOutOfMemory);
  device.reserve(100);
  EXPECT_THROW(device.reserve(100), InvalidArgument);
  device.release();
  EXPECT_NE(device.reserve(100), nullptr);
}

}  // namespace
}  // namespace plimsoll::device
