// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pool_fixture.h"

namespace plimsoll::pool {
namespace {

TEST(TensorPool, HandsOutAlignedDisjointMemoryInsideTheArena) {
  PoolWorld world;
  const BlockId a = world.pool->allocate(1);
  const BlockId b = world.pool->allocate(65);
  const auto* at_a = static_cast<std::byte*>(world.pool->address(a));
  const auto* at_b = static_cast<std::byte*>(world.pool->address(b));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at_a) % 64, 0U);
  EXPECT_EQ(at_b - at_a, 64);
  EXPECT_EQ(world.pool->find(at_a), a);
  EXPECT_EQ(world.pool->find(at_b), b);
  EXPECT_FALSE(world.pool->find(at_b + 1).valid());
  EXPECT_TRUE(world.pool->contains(at_b + 1));
  EXPECT_FALSE(world.pool->contains(&world));
  EXPECT_EQ(world.pool->stats().live_bytes, 64 + 128);
  EXPECT_EQ(world.pool->stats().requested_bytes, 66);
  world.pool->check_invariants();
}

TEST(TensorPool, AllocatesAtAnAddressWhereAllOfItsBytesAreFree) {
  PoolWorld world;  // 4096 bytes
  const BlockId first = world.pool->allocate(64);
  auto* base = static_cast<std::byte*>(world.pool->address(first));
  const BlockId middle = world.pool->allocate_at(base + 1024, 100);
  ASSERT_TRUE(middle.valid());
  EXPECT_EQ(world.pool->address(middle), base + 1024);
  EXPECT_EQ(world.pool->find(base + 1024), middle);
  EXPECT_EQ(world.pool->stats().live_bytes, 64 + 128);
  for (const std::int64_t taken : {0, 1024, 1088, 960})
    EXPECT_FALSE(world.pool->allocate_at(base + taken, 128).valid()) << "at " << taken;
  EXPECT_FALSE(world.pool->allocate_at(base + 4032, 128).valid()) << "over the end";
  EXPECT_TRUE(world.pool->allocate_at(base + 4032, 64).valid());
  EXPECT_TRUE(world.pool->allocate_at(base + 1152, 4032 - 1152).valid());
  EXPECT_EQ(world.pool->stats().blocks, 4);
  world.pool->check_invariants();
}

TEST(TensorPool, NeverEvictsOrMovesAnUnboundBlock) {
  PoolWorld world;
  world.pool->allocate(4032);
  try {
    world.pool->allocate(128);
    FAIL() << "the budget was exceeded";
  } catch (const DeviceOutOfMemory& error) {
    EXPECT_EQ(error.figures().requested_bytes, 128);
    EXPECT_EQ(error.figures().live_bytes, 4032);
    EXPECT_EQ(error.figures().limit_bytes, 4096);
    EXPECT_EQ(error.figures().largest_free_bytes, 64);
  }
  EXPECT_TRUE(world.pool->allocate(64).valid());
  world.pool->check_invariants();
}

TEST(TensorPool, EvictsTheCheapestIdleBlocksAndBringsThemBackUnchanged) {
  PoolWorld world;
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(world.make(1024, i + 1));
  world.policy.costs = {{blocks[0], 9}, {blocks[1], 9}, {blocks[2], 1}, {blocks[3], 9}};
  const BlockId more = world.make(1000, 5);
  EXPECT_EQ(world.pool->residence(blocks[2]), Residence::kHost);
  EXPECT_EQ(world.follower.address(blocks[2]), nullptr);
  EXPECT_EQ(world.pool->stats().offloaded_bytes, 1024);
  world.pool->acquire(std::array{blocks[2]});
  EXPECT_EQ(world.pool->residence(blocks[2]), Residence::kResident);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(world.holds(blocks[static_cast<std::size_t>(i)], i + 1));
  EXPECT_TRUE(world.holds(more, 5));
  world.pool->check_invariants();
}

// Free bytes in three pieces, one request for all of them: the idle blocks slide, none is evicted.
//     [a][ ][b][ ][c][ ]  ->  [a][b][c][     ]
TEST(TensorPool, SlidesIdleBlocksTogetherInsteadOfEvicting) {
  PoolWorld world({.budget_bytes = 6 * 512});
  std::vector<BlockId> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(world.make(512, i + 1));
  for (const int i : {1, 3, 5}) world.pool->deallocate(blocks[static_cast<std::size_t>(i)]);
  world.make(3 * 512, 9);
  EXPECT_EQ(world.pool->stats().evictions, 0);
  EXPECT_GT(world.pool->stats().slid_bytes, 0);
  for (const int i : {0, 2, 4}) {
    EXPECT_TRUE(world.holds(blocks[static_cast<std::size_t>(i)], i + 1));
    EXPECT_EQ(world.follower.address(blocks[static_cast<std::size_t>(i)]),
              world.pool->address(blocks[static_cast<std::size_t>(i)]));
  }
  world.pool->check_invariants();
}

// Operands lie anywhere among idle blocks; the operator needs every byte of the budget.
TEST(TensorPool, AcquireNeverFailsForFragmentationWhereTheOperatorFitsExactly) {
  PoolWorld world({.budget_bytes = 8 * 512});
  std::vector<BlockId> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(world.make(512, i + 1));
  const std::array operands{blocks[1], blocks[4], blocks[6]};
  world.pool->acquire(operands, {.bytes = 5 * 512});
  const BlockId result = world.pool->allocate(4 * 512);
  const BlockId scratch = world.pool->allocate(512);
  EXPECT_TRUE(result.valid() && scratch.valid());
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(world.holds(blocks[static_cast<std::size_t>(i)], i + 1));
  EXPECT_EQ(world.pool->stats().live_bytes, 8 * 512);
  world.pool->check_invariants();
}

TEST(TensorPool, PackedOperandsLeaveRoomForAnyOrderOfUnknownAllocations) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{5 * 512}, {512, 4 * 512}, {4 * 512, 512}, {512, 512, 3 * 512}}) {
    PoolWorld world({.budget_bytes = 8 * 512});
    std::vector<BlockId> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(world.make(512, i + 1));
    const std::array operands{blocks[1], blocks[4], blocks[6]};
    world.pool->acquire(operands, {.pack = true});
    for (const std::int64_t size : sizes) EXPECT_TRUE(world.pool->allocate(size).valid());
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(world.holds(blocks[static_cast<std::size_t>(i)], i + 1));
    world.pool->check_invariants();
  }
}

TEST(TensorPool, CopiesACleanBlockOutOnlyOnce) {
  PoolWorld world;
  const BlockId block = world.make(1000, 7);
  for (int i = 0; i < 3; ++i) {
    world.pool->evict(block);
    world.pool->acquire(std::array{block});
    world.pool->release(std::array{block});
  }
  EXPECT_EQ(world.pool->stats().offloaded_bytes, 1000);
  EXPECT_EQ(world.pool->stats().prefetched_bytes, 3000);
  EXPECT_EQ(world.pool->stats().clean_evictions, 2);
  EXPECT_TRUE(world.pool->host_copy_valid(block));
  world.pool->mark_written(block);
  world.write(block, 8);
  EXPECT_FALSE(world.pool->host_copy_valid(block));
  world.pool->evict(block);
  EXPECT_EQ(world.pool->stats().offloaded_bytes, 2000);
  EXPECT_TRUE(world.holds(block, 8));
}

TEST(TensorPool, DropsCopiesOfResidentBlocksFirstWhenTheHostTierIsFull) {
  PoolWorld world({.host_limit_bytes = 2048});
  const BlockId clean = world.make(2000, 1);
  world.pool->evict(clean);
  world.pool->acquire(std::array{clean});
  world.pool->release(std::array{clean});
  EXPECT_TRUE(world.pool->host_copy_valid(clean));
  const BlockId other = world.make(2000, 2);
  world.pool->evict(other);
  EXPECT_FALSE(world.pool->host_copy_valid(clean));
  EXPECT_TRUE(world.holds(clean, 1));
  EXPECT_TRUE(world.holds(other, 2));
  world.pool->check_invariants();
}

TEST(TensorPool, LosesNothingWhereHostAndDeviceAreFull) {
  PoolWorld world({.host_limit_bytes = 1024});
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(world.make(1024, i + 1));
  world.make(1024, 5);  // one block goes to the host
  EXPECT_THROW(world.pool->allocate(1024), HostOutOfMemory);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(world.holds(blocks[static_cast<std::size_t>(i)], i + 1));
  world.pool->check_invariants();
}

TEST(TensorPool, SpillsToTheFileWhereTheHostIsFull) {
  for (const bool is_host_addressable : {true, false}) {
    PoolWorld world(
        {.host_limit_bytes = 1024, .with_file = true, .is_host_addressable = is_host_addressable});
    std::vector<BlockId> blocks;
    for (int i = 0; i < 12; ++i) blocks.push_back(world.make(1024, i + 1));
    EXPECT_EQ(world.pool->stats().host_bytes, 1024);
    EXPECT_EQ(world.pool->stats().file_bytes, 7 * 1024);
    for (int i = 0; i < 12; ++i) {
      const auto block = blocks[static_cast<std::size_t>(i)];
      EXPECT_TRUE(world.holds(block, i + 1));
      world.pool->acquire(std::array{block});
      EXPECT_TRUE(world.holds(block, i + 1));
      world.pool->release(std::array{block});
    }
    world.pool->check_invariants();
  }
}

TEST(TensorPool, MovesOnTheCopyQueuesAndTellsOwnersWhenDone) {
  PoolWorld world({.delay_ns = 200'000});
  const BlockId block = world.make(2048, 3);
  ASSERT_TRUE(world.pool->begin_evict(block));
  EXPECT_EQ(world.pool->residence(block), Residence::kMovingOut);
  EXPECT_EQ(world.pool->stats().live_bytes, 2048);
  world.pool->synchronize();
  EXPECT_EQ(world.pool->residence(block), Residence::kHost);
  EXPECT_EQ(world.follower.address(block), nullptr);
  EXPECT_EQ(world.pool->stats().live_bytes, 0);
  ASSERT_TRUE(world.pool->begin_fetch(block));
  EXPECT_EQ(world.pool->address(block), nullptr);
  world.pool->acquire(std::array{block});
  EXPECT_EQ(world.follower.address(block), world.pool->address(block));
  EXPECT_TRUE(world.holds(block, 3));
  world.pool->check_invariants();
}

TEST(TensorPool, AcquireTakesBackABlockOnItsWayOut) {
  PoolWorld world({.delay_ns = 200'000});
  const BlockId block = world.make(2048, 3);
  ASSERT_TRUE(world.pool->begin_evict(block));
  world.pool->acquire(std::array{block, block});
  EXPECT_EQ(world.pool->pins(block), 2);
  EXPECT_TRUE(world.pool->host_copy_valid(block));
  EXPECT_EQ(world.follower.moves, 0);
  world.pool->check_invariants();
}

TEST(TensorPool, DoesNotReuseARangeBeforeItsCopyIsDone) {
  for (int round = 0; round < 50; ++round) {
    PoolWorld world({.budget_bytes = 2048, .delay_ns = 100'000});
    const BlockId block = world.make(2048, 3);
    ASSERT_TRUE(world.pool->begin_evict(block));
    const BlockId next = world.make(2048, 4);
    EXPECT_TRUE(world.holds(block, 3));
    ASSERT_TRUE(world.pool->begin_evict(next));
    world.pool->deallocate(next);
    const BlockId last = world.make(2048, 5);
    EXPECT_TRUE(world.holds(last, 5));
    world.pool->check_invariants();
  }
}

TEST(TensorPool, CountsForeignBytesAgainstTheBudget) {
  PoolWorld world;
  const BlockId a = world.make(2048, 1);
  const BlockId b = world.make(2048, 2);
  world.pool->reserve_foreign(1000);
  EXPECT_EQ(world.pool->stats().evictions, 1);
  EXPECT_EQ(world.pool->stats().live_bytes, 3048);
  EXPECT_THROW(world.pool->reserve_foreign(3097), DeviceOutOfMemory);
  world.pool->reserve_foreign(3096);
  EXPECT_EQ(world.pool->stats().live_bytes, 4096);
  EXPECT_THROW(world.pool->allocate(64), DeviceOutOfMemory);
  world.pool->release_foreign(4096);
  EXPECT_TRUE(world.holds(a, 1));
  EXPECT_TRUE(world.holds(b, 2));
  EXPECT_EQ(world.pool->stats().peak_bytes, 4096);
  world.pool->reset_peak();
  EXPECT_EQ(world.pool->stats().peak_bytes, 0);
}

TEST(TensorPool, KnowsTheWasteOfTheMomentOfThePeak) {
  PoolWorld world;
  world.pool->reserve_foreign(10);  // nobody rounds it
  const BlockId a = world.make(100, 1);
  const BlockId b = world.make(65, 2);
  EXPECT_EQ(world.pool->stats().peak_bytes, 10 + 128 + 128);
  EXPECT_EQ(world.pool->stats().peak_waste_bytes, 28 + 63);
  world.pool->deallocate(b);
  const BlockId c = world.make(128, 3);  // as high, but no higher
  EXPECT_EQ(world.pool->stats().peak_waste_bytes, 28 + 63);
  world.pool->deallocate(a);
  world.pool->reset_peak();
  EXPECT_EQ(world.pool->stats().peak_bytes, 10 + 128);
  EXPECT_EQ(world.pool->stats().peak_waste_bytes, 0);
  EXPECT_TRUE(world.holds(c, 3));
}

TEST(TensorPool, ReleasesABlockToTheHostFromAnywhere) {
  PoolWorld world;
  for (int state = 0; state < 4; ++state) {
    const BlockId block = world.make(1000, state + 1);
    if (state == 1) world.pool->evict(block);
    if (state == 2) world.pool->begin_evict(block);
    if (state == 3) {
      world.pool->evict(block);
      world.pool->begin_fetch(block);
    }
    std::vector<char> bytes(1000);
    world.pool->release_to(block, bytes.data());
    EXPECT_THAT(bytes, testing::Each(static_cast<char>(state + 1)));
    EXPECT_THROW(world.pool->size(block), InvalidArgument);
  }
  world.pool->synchronize();
  EXPECT_EQ(world.pool->stats().live_bytes, 0);
  EXPECT_EQ(world.pool->stats().host_bytes, 0);
  world.pool->check_invariants();
}

TEST(TensorPool, RefusesWhatMakesNoSense) {
  PoolWorld world;
  EXPECT_THROW(world.pool->allocate(0), InvalidArgument);
  EXPECT_THROW(world.pool->allocate(-1), InvalidArgument);
  EXPECT_THROW(world.pool->allocate(5000), DeviceOutOfMemory);
  EXPECT_THROW(world.pool->allocate(std::numeric_limits<std::int64_t>::max()), InvalidArgument);
  EXPECT_THROW(world.pool->size(BlockId(17)), InvalidArgument);
  const BlockId block = world.make(64, 1);
  EXPECT_THROW(world.pool->bind(block, &world.follower), InvalidArgument);
  world.pool->pin(block);
  EXPECT_THROW(world.pool->evict(block), InvalidArgument);
  world.pool->unpin(block);
  world.pool->evict(block);
  EXPECT_THROW(world.pool->pin(block), InvalidArgument);
  EXPECT_THROW(world.pool->mark_written(block), InvalidArgument);
  EXPECT_THROW(world.pool->unbind(block), InvalidArgument);
  EXPECT_THROW(world.pool->acquire({}, {.bytes = -1}), InvalidArgument);
  world.pool->check_invariants();
}

}  // namespace
}  // namespace plimsoll::pool
