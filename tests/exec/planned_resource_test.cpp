// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/exec/planned_resource.h"

#include <set>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

#include "live_blocks.h"

namespace plimsoll::exec {
namespace {

using device::Queue;
using testing::LiveBlocks;
using testing::TestMemory;

// Queues whose work is done when the test says so, or when somebody waits for it.
class TwoQueues final : public device::Device {
 public:
  const device::DeviceInfo& info() const noexcept override { return info_; }
  void* reserve(std::int64_t bytes) override { throw Unsupported("no arena here"); }
  void release() noexcept override {}
  device::Event copy(void*, const void*, std::int64_t, device::CopyKind, Queue queue) override {
    return record(queue);
  }
  void copy_blocking(void*, const void*, std::int64_t, device::CopyKind) override {}
  void fill(void*, std::int64_t, std::uint8_t) override {}
  device::Event record(Queue queue) override { return {queue, ++submitted_}; }
  device::Event compute_mark() noexcept override { return record(Queue::kCompute); }
  void wait(Queue, const device::Event&) override {}
  bool done(const device::Event& event) const noexcept override { return event.ticket <= done_; }
  void synchronize(const device::Event& event) override {
    ++waits_;
    done_ = std::max(done_, event.ticket);
  }
  void* allocate_host(std::int64_t) override { throw Unsupported("no host memory here"); }
  void free_host(void*, std::int64_t) noexcept override {}
  void finish_all() { done_ = submitted_; }
  int waits() const { return waits_; }

 private:
  device::DeviceInfo info_;
  std::uint64_t submitted_ = 0;
  std::uint64_t done_ = 0;
  int waits_ = 0;
};

constexpr std::int64_t kBlock = 1024;

class AcrossQueues : public ::testing::Test {
 protected:
  AcrossQueues() : resource_(memory_, options()) {
    resource_.step_mark();
    for (int step = 0; step < 4; ++step) {  // one block, free again before the step ends
      void* block = resource_.allocate(kBlock, Queue::kCompute);
      resource_.deallocate(block, kBlock, Queue::kCompute);
      resource_.step_mark();
    }
  }
  PlannedResourceOptions options() {
    PlannedResourceOptions options;
    options.replay.plan_in_background = false;
    options.device = &device_;
    options.device_lock = &device_lock_;
    return options;
  }
  TwoQueues device_;
  std::mutex device_lock_;
  TestMemory memory_;
  PlannedResource resource_;
};

// Case 11: the planned place waits for another queue, and one more block fits beside it.
TEST_F(AcrossQueues, ARequestIsServedBesideABlockThatWaitsForAnotherQueue) {
  void* first = resource_.allocate(kBlock, Queue::kCompute);
  ASSERT_TRUE(resource_.engine().owns(first));
  resource_.deallocate(first, kBlock, Queue::kCopyOut);  // the copy may still read it
  resource_.step_mark();
  memory_.set_limit(memory_.stats().live_bytes + kBlock);  // live + one block
  void* second = resource_.allocate(kBlock, Queue::kCompute);
  EXPECT_NE(second, first);
  EXPECT_EQ(device_.waits(), 0);
  resource_.deallocate(second, kBlock, Queue::kCompute);
}

TEST_F(AcrossQueues, ARequestWaitsForTheOtherQueueWhereNothingElseFits) {
  void* first = resource_.allocate(kBlock, Queue::kCompute);
  resource_.deallocate(first, kBlock, Queue::kCopyOut);
  resource_.step_mark();
  memory_.set_limit(memory_.stats().live_bytes);  // not one byte more
  void* second = resource_.allocate(kBlock, Queue::kCompute);
  EXPECT_EQ(second, first);
  EXPECT_EQ(device_.waits(), 1);
  resource_.deallocate(second, kBlock, Queue::kCompute);
}

TEST_F(AcrossQueues, ABlockWhoseOtherQueueIsDoneIsHandedOutAgain) {
  void* first = resource_.allocate(kBlock, Queue::kCompute);
  resource_.deallocate(first, kBlock, Queue::kCopyOut);
  resource_.step_mark();
  device_.finish_all();
  EXPECT_EQ(resource_.allocate(kBlock, Queue::kCompute), first);
  resource_.deallocate(first, kBlock, Queue::kCompute);
}

TEST_F(AcrossQueues, EachQueueHasALaneOfItsOwn) {
  void* compute = resource_.allocate(kBlock, Queue::kCompute);
  void* copy = resource_.allocate(kBlock, Queue::kCopyIn);
  EXPECT_TRUE(resource_.engine().owns(compute));
  EXPECT_FALSE(resource_.engine().owns(copy));
  resource_.deallocate(compute, kBlock, Queue::kCompute);
  resource_.deallocate(copy, kBlock, Queue::kCopyIn);
}

TEST_F(AcrossQueues, OutOfMemoryLeavesTheStateAndTheNextSmallerRequestWorks) {
  memory_.set_limit(memory_.stats().live_bytes + 2 * kBlock);
  const pool::ResourceStatistics before = resource_.stats();
  EXPECT_THROW(resource_.allocate(3 * kBlock, Queue::kCompute), DeviceOutOfMemory);
  EXPECT_EQ(resource_.stats().live_bytes, before.live_bytes);
  EXPECT_EQ(resource_.stats().failures, before.failures + 1);
  void* smaller = resource_.allocate(2 * kBlock, Queue::kCompute);
  EXPECT_NE(smaller, nullptr);
  resource_.deallocate(smaller, 2 * kBlock, Queue::kCompute);
}

TEST_F(AcrossQueues, AnEmptyRequestIsNullAndTakesPartInNothing) {
  const auto before = resource_.engine().statistics();
  EXPECT_EQ(resource_.allocate(0, Queue::kCompute), nullptr);
  resource_.deallocate(nullptr, 0, Queue::kCompute);
  void* block = resource_.allocate(kBlock, Queue::kCompute);
  EXPECT_TRUE(resource_.engine().owns(block));
  resource_.deallocate(block, kBlock, Queue::kCompute);
  resource_.step_mark();
  EXPECT_EQ(resource_.engine().statistics().missed, before.missed);
  EXPECT_THROW(resource_.allocate(-1, Queue::kCompute), InvalidArgument);
}

TEST(PlannedResource, ADeviceNeedsItsLock) {
  TestMemory memory;
  TwoQueues device;
  PlannedResourceOptions options;
  options.device = &device;
  EXPECT_THROW(PlannedResource(memory, options), InvalidArgument);
}

}  // namespace
}  // namespace plimsoll::exec
