// SPDX-License-Identifier: Apache-2.0
// Parts of blocks, wherever their bytes are: in the arena, on the host, in a file.
#include <vector>

#include <gtest/gtest.h>

#include "pool_fixture.h"

namespace plimsoll::pool {
namespace {

std::vector<unsigned char> pattern_of(std::int64_t bytes, int pattern) {
  return std::vector<unsigned char>(static_cast<std::size_t>(bytes),
                                    static_cast<unsigned char>(pattern));
}

TEST(Parts, ABlockBelowMayBeLargerThanTheArenaAndIsStreamedThroughIt) {
  PoolWorld world({.budget_bytes = 4096});
  constexpr std::int64_t kBytes = 10000;
  const BlockId large = world.pool->allocate_below(kBytes, &world.follower);
  world.follower.place(large, nullptr);
  const auto start = pattern_of(kBytes, 7);
  world.pool->write_part(large, 0, start.data(), kBytes);
  const BlockId chunk = world.pool->allocate(1024);
  auto* bytes = static_cast<unsigned char*>(world.pool->address(chunk));
  for (std::int64_t done = 0; done < kBytes; done += 1024) {
    const std::int64_t part = std::min<std::int64_t>(1024, kBytes - done);
    world.pool->read_part(large, done, bytes, part);
    for (std::int64_t i = 0; i < part; ++i) ++bytes[i];
    world.pool->write_part(large, done, bytes, part);
  }
  EXPECT_TRUE(world.holds(large, 8));
  EXPECT_EQ(world.follower.moves, 0);
  EXPECT_EQ(world.pool->stats().prefetched_bytes, kBytes);
  EXPECT_LE(world.pool->stats().peak_bytes, 4096);
  EXPECT_THROW(world.pool->acquire({&large, 1}), DeviceOutOfMemory);
  world.pool->check_invariants();
}

TEST(Parts, WritingAResidentBlockDropsItsCopyBelow) {
  PoolWorld world;
  const BlockId block = world.make(512, 1);
  world.pool->evict(block);
  world.pool->acquire({&block, 1});
  world.pool->release({&block, 1});
  ASSERT_TRUE(world.pool->host_copy_valid(block));
  const auto fresh = pattern_of(512, 2);
  world.pool->write_part(block, 0, fresh.data(), 512);
  EXPECT_FALSE(world.pool->host_copy_valid(block));
  world.pool->evict(block);
  EXPECT_TRUE(world.holds(block, 2));
}

TEST(Parts, AFilesPartsKeepTheirNeighboursAndTheirChecksums) {
  PoolWorld world({.budget_bytes = 4096, .host_limit_bytes = 0, .with_file = true});
  constexpr std::int64_t kBytes = (5 << 20) / 2 + 123;  // two chunks of the file and a half
  const BlockId large = world.pool->allocate_below(kBytes, &world.follower);
  world.follower.place(large, nullptr);
  const auto all = pattern_of(kBytes, 3);
  world.pool->write_part(large, 0, all.data(), kBytes);
  const auto middle = pattern_of(700'000, 9);
  world.pool->write_part(large, 600'000, middle.data(), 700'000);
  std::vector<unsigned char> read(kBytes);
  world.pool->read_part(large, 0, read.data(), kBytes);
  for (std::int64_t i = 0; i < kBytes; ++i) {
    const bool is_middle = i >= 600'000 && i < 1'300'000;
    ASSERT_EQ(read[static_cast<std::size_t>(i)], is_middle ? 9 : 3) << i;
  }
  EXPECT_EQ(world.pool->residence(large), Residence::kFile);
  world.pool->check_invariants();
}

TEST(Parts, FullTiersAndBytesBeyondTheBlockAreRefused) {
  PoolWorld world({.budget_bytes = 4096, .host_limit_bytes = 8192});
  EXPECT_THROW(world.pool->allocate_below(10000, &world.follower), HostOutOfMemory);
  EXPECT_THROW(world.pool->allocate_below(0, &world.follower), InvalidArgument);
  EXPECT_THROW(world.pool->allocate_below(64, nullptr), InvalidArgument);
  const BlockId block = world.make(100, 1);
  unsigned char byte = 0;
  EXPECT_THROW(world.pool->read_part(block, 100, &byte, 1), InvalidArgument);
  EXPECT_THROW(world.pool->write_part(block, -1, &byte, 1), InvalidArgument);
  world.pool->read_part(block, 100, &byte, 0);
  world.pool->check_invariants();
}

}  // namespace
}  // namespace plimsoll::pool
