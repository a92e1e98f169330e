// SPDX-License-Identifier: Apache-2.0
// What the pool costs per call, without the copies. Each case checks its result before it is timed.
//   build/release/bench/pool_benchmark --benchmark_min_time=0.5
#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/device/host_device.h"
#include "plimsoll/pool/compaction.h"
#include "plimsoll/pool/range_allocator.h"
#include "plimsoll/pool/tensor_pool.h"

namespace plimsoll::pool {
namespace {

struct Follower final : BlockOwner {
  void on_move(BlockId, void*, void*) noexcept override {}
};
struct ByNumber final : EvictionPolicy {
  double eviction_cost(BlockId block) const override { return 1.0 + block.value() % 97; }
};

struct World {
  explicit World(std::int64_t budget) : host(device), pool(device, host, policy, {budget}) {}
  device::HostDevice device;
  HostTier host;
  ByNumber policy;
  Follower follower;
  TensorPool pool;
};

// The naive baseline: what the C library takes.
void library_allocate(benchmark::State& state) {
  std::mt19937_64 random(1);
  std::vector<void*> live(1000);
  for (void*& pointer : live) pointer = std::aligned_alloc(64, 4096);
  for (auto _ : state) {
    const std::size_t i = random() % live.size();
    std::free(live[i]);
    live[i] = std::aligned_alloc(64, static_cast<std::size_t>(64 * (1 + random() % 256)));
  }
  for (void* pointer : live) std::free(pointer);
}
BENCHMARK(library_allocate);

// allocate + bind + deallocate among `range(0)` live blocks of mixed sizes, no pressure.
void pool_allocate(benchmark::State& state) {
  World world(gib(1));
  std::mt19937_64 random(1);
  std::vector<BlockId> live(static_cast<std::size_t>(state.range(0)));
  const auto make = [&] {
    const BlockId block = world.pool.allocate(static_cast<std::int64_t>(64 * (1 + random() % 256)));
    world.pool.bind(block, &world.follower);
    return block;
  };
  for (BlockId& block : live) block = make();
  world.pool.check_invariants();
  for (auto _ : state) {
    const std::size_t i = random() % live.size();
    world.pool.deallocate(live[i]);
    live[i] = make();
  }
}
BENCHMARK(pool_allocate)->Arg(100)->Arg(1000)->Arg(10000);

// The same without choosing at random: the pattern of an operator's scratch.
void pool_allocate_same(benchmark::State& state) {
  World world(gib(1));
  std::vector<BlockId> live;
  live.reserve(1000);
  for (std::int64_t i = 0; i < 1000; ++i) live.push_back(world.pool.allocate(64 * (1 + i % 100)));
  for (auto _ : state) {
    const BlockId block = world.pool.allocate(4096);
    benchmark::DoNotOptimize(world.pool.address(block));
    world.pool.deallocate(block);
  }
}
BENCHMARK(pool_allocate_same);

// acquire + release of `range(0)` resident blocks; the counter is the cost of one block.
void pool_acquire_resident(benchmark::State& state) {
  World world(mib(64));
  std::vector<BlockId> blocks;
  for (int i = 0; i < state.range(0); ++i) {
    blocks.push_back(world.pool.allocate(4096));
    world.pool.bind(blocks.back(), &world.follower);
  }
  for (auto _ : state) {
    world.pool.acquire(blocks, {.bytes = 4096});
    world.pool.release(blocks);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(pool_acquire_resident)->Arg(1)->Arg(4)->Arg(64);

void pool_find(benchmark::State& state) {
  World world(mib(64));
  std::vector<void*> addresses;
  addresses.reserve(1000);
  for (int i = 0; i < 1000; ++i) addresses.push_back(world.pool.address(world.pool.allocate(4096)));
  std::size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(world.pool.find(addresses[++i % 1000]));
}
BENCHMARK(pool_find);

// One plan over `range(0)` segments: near n log n.
void plan_a_hole(benchmark::State& state) {
  std::mt19937_64 random(1);
  std::vector<CompactionItem> items;
  for (int i = 0; i < state.range(0); ++i) {
    CompactionItem item;
    item.kind = i % 4 == 0    ? CompactionItem::Kind::kFree
                : i % 97 == 0 ? CompactionItem::Kind::kFixed
                              : CompactionItem::Kind::kMovable;
    item.bytes = static_cast<std::int64_t>(64 * (1 + random() % 100));
    item.eviction_cost = static_cast<double>(random() % 1000);
    items.push_back(item);
  }
  const CompactionRequest request{.hole_bytes = std::int64_t{64} * 300,
                                  .slide_cost_per_byte = 0.01};
  if (!plan_compaction(items, request).is_feasible) state.SkipWithError("no plan");
  for (auto _ : state) benchmark::DoNotOptimize(plan_compaction(items, request).cost);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(plan_a_hole)->RangeMultiplier(4)->Range(64, 16384)->Complexity(benchmark::oNLogN);

// Blocks of one size under pressure: each allocation evicts one block, each acquire fetches one.
void pool_evict_and_fetch(benchmark::State& state) {
  const std::int64_t bytes = state.range(0);
  World world(8 * bytes);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 16; ++i) {
    blocks.push_back(world.pool.allocate(bytes));
    world.pool.bind(blocks.back(), &world.follower);
  }
  std::size_t i = 0;
  for (auto _ : state) {
    const std::array operand{blocks[i++ % blocks.size()]};
    world.pool.acquire(operand);
    world.pool.mark_written(operand[0]);
    world.pool.release(operand);
  }
  world.pool.check_invariants();
  const PoolStatistics stats = world.pool.stats();
  state.SetBytesProcessed(stats.offloaded_bytes + stats.prefetched_bytes);
}
BENCHMARK(pool_evict_and_fetch)->Arg(4096)->Arg(1 << 20)->Arg(16 << 20)->UseRealTime();

}  // namespace
}  // namespace plimsoll::pool

BENCHMARK_MAIN();
