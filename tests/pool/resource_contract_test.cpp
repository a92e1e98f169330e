// SPDX-License-Identifier: Apache-2.0
// What any MemoryResource must do, run over every resource, adaptor and fake.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/device/host_device.h"
#include "plimsoll/exec/planned_resource.h"
#include "plimsoll/pool/arena_resource.h"
#include "plimsoll/pool/host_resource.h"
#include "plimsoll/pool/limited_resource.h"
#include "plimsoll/pool/logging_resource.h"
#include "plimsoll/pool/statistics_resource.h"

// Requests that no machine can meet must come back as errors under the sanitizers too.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace plimsoll::pool {
namespace {

using device::Queue;

// A fake for tests of other parts: memory of the C library under a lock, refusing on request.
class RefusingResource final : public MemoryResource {
 public:
  void* allocate(std::int64_t bytes, Queue) override {
    if (bytes < 0) throw InvalidArgument("a negative size");
    if (bytes == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    if (bytes > mib(64) || refuse_next) {
      refuse_next = false;
      ++stats_.failures;
      throw DeviceOutOfMemory("refused", {bytes, stats_.live_bytes, mib(64), 0});
    }
    void* const pointer = std::aligned_alloc(64, static_cast<std::size_t>(align_up(bytes, 64)));
    ++stats_.allocations;
    ++stats_.live_blocks;
    stats_.allocated_bytes += bytes;
    stats_.live_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    return pointer;
  }
  void deallocate(void* pointer, std::int64_t bytes, Queue) noexcept override {
    if (pointer == nullptr) return;
    const std::lock_guard lock(mutex_);
    std::free(pointer);
    --stats_.live_blocks;
    stats_.live_bytes -= bytes;
  }
  std::int64_t alignment_bytes() const noexcept override { return 64; }
  ResourceStatistics stats() const noexcept override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  std::string name() const override { return "refusing"; }
  bool refuse_next = false;

 private:
  mutable std::mutex mutex_;
  ResourceStatistics stats_;
};

constexpr std::int64_t kCapacity = 4 << 20;

struct PlainHost {
  HostResource resource;
};
struct LimitedHost {
  HostResource upstream;
  LimitedResource resource{upstream, kCapacity};
};
struct CountedHost {
  HostResource upstream;
  StatisticsResource resource{upstream};
};
struct LoggedHost {
  HostResource upstream;
  std::vector<ResourceEvent> events;
  LoggingResource resource{upstream,
                           [this](const ResourceEvent& event) { events.push_back(event); }};
};
struct Arena {
  device::HostDevice device;
  ArenaResource resource{device, kCapacity};
};
struct Stacked {
  device::HostDevice device;
  ArenaResource arena{device, 2 * kCapacity};
  LimitedResource limited{arena, kCapacity};
  StatisticsResource counted{limited};
  LoggingResource resource{counted, [](const ResourceEvent&) {}};
};
struct Planned {
  Planned() { resource.step_mark(); }
  HostResource upstream;
  exec::PlannedResource resource{upstream};
};
struct Fake {
  RefusingResource resource;
};

template <typename Fixture>
class ResourceContract : public testing::Test {
 protected:
  MemoryResource& resource() { return fixture_.resource; }
  Fixture fixture_;
};

using Fixtures =
    testing::Types<PlainHost, LimitedHost, CountedHost, LoggedHost, Arena, Stacked, Planned, Fake>;
TYPED_TEST_SUITE(ResourceContract, Fixtures);

TYPED_TEST(ResourceContract, AnswersSizeZeroWithNullAndCountsNothing) {
  EXPECT_EQ(this->resource().allocate(0, Queue::kCompute), nullptr);
  this->resource().deallocate(nullptr, 0, Queue::kCompute);
  this->resource().deallocate(nullptr, 100, Queue::kCompute);
  EXPECT_EQ(this->resource().stats().allocations, 0);
  EXPECT_EQ(this->resource().stats().live_bytes, 0);
  EXPECT_FALSE(this->resource().name().empty());
}

TYPED_TEST(ResourceContract, RefusesANegativeSize) {
  EXPECT_THROW(this->resource().allocate(-1, Queue::kCompute), InvalidArgument);
  EXPECT_EQ(this->resource().stats().live_blocks, 0);
}

TYPED_TEST(ResourceContract, SaysNoWithFiguresAndTheNextSmallerRequestWorks) {
  void* const kept = this->resource().allocate(1000, Queue::kCompute);
  const ResourceStatistics before = this->resource().stats();
  try {
    this->resource().allocate(std::int64_t{1} << 50, Queue::kCompute);
    FAIL() << "a petabyte was handed out";
  } catch (const DeviceOutOfMemory& error) {
    EXPECT_EQ(error.figures().requested_bytes, std::int64_t{1} << 50);
  }
  EXPECT_EQ(this->resource().stats().live_bytes, before.live_bytes);
  EXPECT_EQ(this->resource().stats().allocations, before.allocations);
  void* const next = this->resource().allocate(mib(1), Queue::kCompute);
  EXPECT_NE(next, nullptr);
  this->resource().deallocate(next, mib(1), Queue::kCompute);
  this->resource().deallocate(kept, 1000, Queue::kCompute);
}

TYPED_TEST(ResourceContract, HandsOutAlignedDisjointMemoryAndKeepsItsBooks) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    struct Live {
      unsigned char* pointer;
      std::int64_t bytes;
      int pattern;
    };
    std::vector<Live> live;
    std::int64_t live_bytes = 0;
    std::int64_t peak = this->resource().stats().peak_bytes;
    for (int step = 0; step < 2000; ++step) {
      const auto queue = static_cast<Queue>(random() % device::kQueueCount);
      if ((random() % 2 == 0 && live.size() < 100) || live.empty()) {
        const auto bytes = static_cast<std::int64_t>(1 + random() % 10000);
        auto* pointer = static_cast<unsigned char*>(this->resource().allocate(bytes, queue));
        ASSERT_NE(pointer, nullptr);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pointer) %
                      static_cast<std::uintptr_t>(this->resource().alignment_bytes()),
                  0U);
        live.push_back({pointer, bytes, static_cast<int>(random() % 256)});
        std::memset(pointer, live.back().pattern, static_cast<std::size_t>(bytes));
        live_bytes += bytes;
        peak = std::max(peak, live_bytes);
      } else {
        const std::size_t i = random() % live.size();
        const Live block = live[i];
        ASSERT_TRUE(std::all_of(block.pointer, block.pointer + block.bytes,
                                [&](unsigned char byte) { return byte == block.pattern; }));
        this->resource().deallocate(block.pointer, block.bytes, queue);
        live_bytes -= block.bytes;
        live[i] = live.back();
        live.pop_back();
      }
      const ResourceStatistics stats = this->resource().stats();
      ASSERT_EQ(stats.live_bytes, live_bytes);
      ASSERT_EQ(stats.live_blocks, static_cast<std::int64_t>(live.size()));
      ASSERT_EQ(stats.peak_bytes, peak);
    }
    for (const Live& block : live)
      this->resource().deallocate(block.pointer, block.bytes, Queue::kCompute);
    EXPECT_EQ(this->resource().stats().live_bytes, 0);
  }
}

TYPED_TEST(ResourceContract, ServesManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 500;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      std::mt19937_64 random(static_cast<std::uint64_t>(thread));
      for (int step = 0; step < kSteps; ++step) {
        const auto bytes = static_cast<std::int64_t>(1 + random() % 5000);
        void* const pointer = this->resource().allocate(bytes, Queue::kCompute);
        std::memset(pointer, thread, static_cast<std::size_t>(bytes));
        this->resource().deallocate(pointer, bytes, Queue::kCompute);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(this->resource().stats().allocations, kThreads * kSteps);
  EXPECT_EQ(this->resource().stats().live_bytes, 0);
}

TEST(LimitedResource, HoldsItsLimitToTheByteOnEveryThread) {
  HostResource host;
  LimitedResource limited(host, 1024);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int step = 0; step < 2000; ++step) {
        try {
          void* const pointer = limited.allocate(300, Queue::kCompute);
          EXPECT_LE(limited.charged_bytes(), 1024);
          limited.deallocate(pointer, 300, Queue::kCompute);
        } catch (const DeviceOutOfMemory& error) {
          EXPECT_GT(error.figures().live_bytes + 320, 1024);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(limited.charged_bytes(), 0);
  EXPECT_LE(limited.peak_bytes(), 1024);
  EXPECT_THROW(LimitedResource(host, 0), InvalidArgument);
}

TEST(LimitedResource, NamesRequestLiveAndLimitAndLetsTheNextSmallerThrough) {
  HostResource host;
  LimitedResource limited(host, mib(8));
  try {
    limited.allocate(mib(9), Queue::kCompute);
    FAIL() << "the limit was exceeded";
  } catch (const DeviceOutOfMemory& error) {
    EXPECT_EQ(error.figures().requested_bytes, mib(9));
    EXPECT_EQ(error.figures().live_bytes, 0);
    EXPECT_EQ(error.figures().limit_bytes, mib(8));
  }
  void* const pointer = limited.allocate(mib(8), Queue::kCompute);
  limited.deallocate(pointer, mib(8), Queue::kCompute);
}

TEST(LimitedResource, GivesItsChargeBackWhereTheUpstreamRefuses) {
  RefusingResource refusing;
  LimitedResource limited(refusing, mib(8));
  refusing.refuse_next = true;
  EXPECT_THROW(limited.allocate(mib(1), Queue::kCompute), DeviceOutOfMemory);
  EXPECT_EQ(limited.charged_bytes(), 0);
}

TEST(StatisticsResource, KeepsLiveWhereThePeakIsSetBack) {
  HostResource host;
  StatisticsResource counted(host);
  void* const a = counted.allocate(100, Queue::kCompute);
  void* const b = counted.allocate(50, Queue::kCompute);
  counted.deallocate(b, 50, Queue::kCompute);
  EXPECT_EQ(counted.stats().peak_bytes, 150);
  counted.reset_peak();
  EXPECT_EQ(counted.stats().peak_bytes, 100);
  EXPECT_EQ(counted.stats().live_bytes, 100);
  counted.deallocate(a, 100, Queue::kCompute);
}

TEST(LoggingResource, TellsEveryCallInOrder) {
  RefusingResource refusing;
  std::vector<std::string> lines;
  LoggingResource logged(refusing,
                         [&](const ResourceEvent& event) { lines.push_back(to_string(event)); });
  void* const pointer = logged.allocate(10, Queue::kCompute);
  refusing.refuse_next = true;
  EXPECT_THROW(logged.allocate(20, Queue::kCopyIn), DeviceOutOfMemory);
  logged.deallocate(pointer, 10, Queue::kCopyOut);
  EXPECT_THAT(lines, testing::ElementsAre("0 allocate 10 compute", "1 refusal 20 copy_in",
                                          "2 deallocate 10 copy_out"));
  EXPECT_THROW(LoggingResource(refusing, nullptr), InvalidArgument);
}

// pytorch#189504: out of memory while a block that fits waits for an event. Capacity is what is
// live and one block, and that block's free is pending behind a copy of another queue.
TEST(ArenaResource, WaitsForAPendingFreeInsteadOfFailing) {
  for (int round = 0; round < 20; ++round) {
    device::HostDevice device(
        {.delay_ns = 2'000'000, .delay_seed = static_cast<std::uint64_t>(round)});
    ArenaResource arena(device, 8192);
    void* const live = arena.allocate(4096, Queue::kCompute);
    void* const leaving = arena.allocate(4096, Queue::kCopyOut);
    std::memset(leaving, 7, 4096);
    std::vector<char> target(4096);
    device.copy(target.data(), leaving, 4096, device::CopyKind::kDeviceToHost, Queue::kCopyOut);
    arena.deallocate(leaving, 4096, Queue::kCopyOut);
    void* const next = arena.allocate(4096, Queue::kCompute);  // the first call succeeds
    std::memset(next, 1, 4096);
    EXPECT_THAT(target, testing::Each(7));  // and not before the copy has read its bytes
    arena.deallocate(next, 4096, Queue::kCompute);
    arena.deallocate(live, 4096, Queue::kCompute);
    arena.check_invariants();
  }
}

}  // namespace
}  // namespace plimsoll::pool
