// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/host_tier.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/device/host_device.h"

namespace plimsoll::pool {
namespace {

// pytorch#150517: seven tensors of 1.1 MiB cost 14 MiB where sizes are rounded to powers of two.
TEST(HostTier, WastesLittleOnOddSizes) {
  device::HostDevice device;
  HostTier tier(device);
  for (int i = 0; i < 7; ++i) tier.allocate(mib(11) / 10);
  EXPECT_LE(tier.reserved_bytes(), mib(78) / 10);
  tier.check_invariants();
}

// The kind of fault, not only its row: any mix of sizes costs little more than its bytes.
TEST(HostTier, WastesAtMostAPageOrAnEighthForAnySizes) {
  device::HostDevice device;
  for (const std::int64_t size :
       {kib(3), kib(100), kib(257), kib(1025), mib(3) + 1, mib(17) + 4095}) {
    HostTier tier(device);
    std::int64_t asked = 0;
    for (int i = 0; i < 20; ++i) asked += tier.allocate(size + i * 64).bytes;
    EXPECT_LE(tier.reserved_bytes(), asked + asked / 8 + mib(1)) << size;
    EXPECT_EQ(tier.used_bytes(), asked);
  }
}

TEST(HostTier, GivesATypedErrorAtItsLimitAndGoesOnAfterwards) {
  device::HostDevice device;
  HostTier tier(device, {.limit_bytes = mib(4)});
  const HostSpan span = tier.allocate(mib(3));
  EXPECT_TRUE(tier.has_room(mib(1)));
  EXPECT_FALSE(tier.has_room(mib(1) + 1));
  EXPECT_FALSE(tier.try_allocate(mib(2)).has_value());
  try {
    tier.allocate(mib(2));
    FAIL() << "the limit was exceeded";
  } catch (const HostOutOfMemory& error) {
    EXPECT_EQ(error.figures().requested_bytes, mib(2));
    EXPECT_EQ(error.figures().live_bytes, mib(3));
    EXPECT_EQ(error.figures().limit_bytes, mib(4));
    EXPECT_EQ(error.figures().largest_free_bytes, mib(1));
  }
  tier.allocate(mib(1));
  tier.deallocate(span);
  tier.allocate(mib(2));
  tier.check_invariants();
}

TEST(HostTier, KeepsFreedSlabsForReuse) {
  device::FaultPlan faults;
  device::HostDeviceOptions options;
  options.faults = &faults;
  device::HostDevice device(options);
  HostTier tier(device);
  for (int round = 0; round < 10; ++round) {
    std::vector<HostSpan> spans;
    for (int i = 0; i < 5; ++i) spans.push_back(tier.allocate(mib(2) + i * 4096));
    for (const HostSpan& span : spans) tier.deallocate(span);
  }
  EXPECT_EQ(faults.calls(device::FaultKind::kAllocateHost), 5);
  EXPECT_EQ(tier.used_bytes(), 0);
  EXPECT_GT(tier.reserved_bytes(), mib(10));
  tier.trim();
  EXPECT_EQ(tier.reserved_bytes(), 0);
}

TEST(HostTier, KeepsNoMoreThanAQuarterBeyondWhatWasEverUsed) {
  device::HostDevice device;
  HostTier tier(device);
  for (std::int64_t size = mib(1); size < mib(400); size += size / 5)
    tier.deallocate(tier.allocate(size));
  EXPECT_LE(tier.reserved_bytes(), mib(500) + mib(64));
}

TEST(HostTier, HandsOutDisjointMemoryOverRandomWalks) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    device::HostDevice device;
    HostTier tier(device, {.limit_bytes = mib(16)});
    std::vector<std::pair<HostSpan, int>> spans;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 2 == 0 || spans.empty()) {
        const auto bytes =
            static_cast<std::int64_t>(1 + random() % (random() % 4 == 0 ? mib(2) : kib(20)));
        const auto span = tier.try_allocate(bytes);
        if (!span) continue;
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(span->data) % 64, 0U);
        spans.emplace_back(*span, static_cast<int>(random() % 256));
        std::memset(span->data, spans.back().second, static_cast<std::size_t>(bytes));
      } else {
        const std::size_t i = random() % spans.size();
        const auto& [span, pattern] = spans[i];
        const auto* bytes = static_cast<const unsigned char*>(span.data);
        ASSERT_EQ(bytes[0], pattern);
        ASSERT_EQ(bytes[span.bytes - 1], pattern);
        ASSERT_EQ(std::memcmp(bytes, bytes + 1, static_cast<std::size_t>(span.bytes - 1)), 0);
        tier.deallocate(span);
        spans[i] = spans.back();
        spans.pop_back();
      }
      ASSERT_NO_THROW(tier.check_invariants());
    }
  }
}

TEST(HostTier, TreatsAMachineWithoutMemoryAsFull) {
  device::FaultPlan faults;
  device::HostDeviceOptions options;
  options.faults = &faults;
  device::HostDevice device(options);
  HostTier tier(device);
  faults.fail(device::FaultKind::kAllocateHost, 1);
  EXPECT_THROW(tier.allocate(100), HostOutOfMemory);
  tier.check_invariants();
  EXPECT_TRUE(tier.allocate(100).valid());
  EXPECT_THROW(tier.allocate(0), InvalidArgument);
  EXPECT_THROW(HostTier(device, {.limit_bytes = -1}), InvalidArgument);
}

}  // namespace
}  // namespace plimsoll::pool
