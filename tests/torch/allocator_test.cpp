// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/allocator.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/explain/explanation.h"
#include "plimsoll/explain/snapshot.h"
#include "plimsoll/session.h"

namespace plimsoll {
namespace {

class AllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    install_allocator();
    reset_allocator_statistics();
  }
  void TearDown() override { install_allocator(); }
};

// By how much the figures of one kind have grown.
struct Growth {
  std::int64_t live_bytes = 0;
  std::int64_t allocated_bytes = 0;
  std::int64_t allocations = 0;
  bool operator==(const Growth&) const = default;
};

void PrintTo(const Growth& growth, std::ostream* out) {
  *out << growth.live_bytes << " bytes live, " << growth.allocated_bytes << " allocated in "
       << growth.allocations;
}

Growth grown(const AllocatorStatistics& from, const AllocatorStatistics& to, AllocationKind kind) {
  const auto& a = from.kinds[static_cast<std::size_t>(kind)];
  const auto& b = to.kinds[static_cast<std::size_t>(kind)];
  return {b.live_bytes - a.live_bytes, b.allocated_bytes - a.allocated_bytes,
          b.allocations - a.allocations};
}

void expect_kinds_sum_to_live(const AllocatorStatistics& figures) {
  std::int64_t sum = 0;
  for (const auto& kind : figures.kinds) sum += kind.live_bytes;
  EXPECT_EQ(sum, figures.live_bytes);
}

torch::Tensor bytes_tensor(std::int64_t bytes) { return torch::empty({bytes}, torch::kByte); }

TEST_F(AllocatorTest, CountsLiveAndPeakAndResetKeepsLive) {
  const auto before = allocator_statistics();
  auto a = bytes_tensor(1000);  // rounded to 1024
  EXPECT_EQ(allocator_statistics().live_bytes, before.live_bytes + 1024);
  auto b = bytes_tensor(64);
  b.reset();
  auto after = allocator_statistics();
  EXPECT_EQ(after.live_bytes, before.live_bytes + 1024);
  EXPECT_EQ(after.peak_bytes, before.live_bytes + 1024 + 64);
  reset_allocator_statistics();
  after = allocator_statistics();
  EXPECT_EQ(after.peak_bytes, after.live_bytes);
  EXPECT_EQ(after.live_bytes, before.live_bytes + 1024);
}

TEST_F(AllocatorTest, OverTheLimitIsOutOfMemoryErrorWithTheNumbersAndTheNextSmallerWorks) {
  const auto live = allocator_statistics().live_bytes;
  install_allocator({.limit_bytes = live + mib(8)});
  try {
    bytes_tensor(mib(9));
    FAIL() << "a request over the limit was answered";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("requested 9437184 bytes"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("live " + std::to_string(live)));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("limit " + std::to_string(live + mib(8))));
  }
  EXPECT_EQ(allocator_statistics().live_bytes, live);
  EXPECT_EQ(allocator_statistics().refused, 1);
  auto fits = bytes_tensor(mib(8));
  EXPECT_EQ(allocator_statistics().live_bytes, live + mib(8));
}

TEST_F(AllocatorTest, TheLargestFreeOfTheErrorFitsAndOneByteMoreDoesNot) {
  const auto live = allocator_statistics().live_bytes;
  install_allocator({.limit_bytes = live + 1000});  // no multiple of the alignment
  try {
    bytes_tensor(1000);
    FAIL() << "a request over the limit was answered";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("largest free 960"));
  }
  EXPECT_THROW(bytes_tensor(961), c10::OutOfMemoryError);
  EXPECT_EQ(bytes_tensor(960).nbytes(), 960U);
}

TEST_F(AllocatorTest, EmptyTensorsAndTheirGradientsCountNothing) {
  const auto before = allocator_statistics();
  auto empty = torch::empty({0, 4}, torch::requires_grad());
  auto other = torch::cat({empty.detach(), torch::empty({0, 4})});
  EXPECT_EQ(other.numel(), 0);
  EXPECT_EQ(empty.data_ptr(), nullptr);
  EXPECT_EQ(allocator_statistics().peak_bytes, before.live_bytes);
  empty.sum().backward();  // the sum and its gradient are numbers, gone with the graph
  EXPECT_TRUE(empty.grad().defined());
  EXPECT_EQ(allocator_statistics().live_bytes, before.live_bytes);
  EXPECT_EQ(allocator_statistics().live_blocks, before.live_blocks);
}

TEST_F(AllocatorTest, TellsForwardBackwardAndOutsideApart) {
  auto x = torch::ones({256}, torch::requires_grad());
  reset_allocator_statistics();
  const auto start = allocator_statistics();
  auto y = (x * x).sum();  // 1024 bytes that go, and 64 that stay
  const auto forward = allocator_statistics();
  EXPECT_EQ(grown(start, forward, AllocationKind::kForward), (Growth{64, 1024 + 64, 2}));
  EXPECT_EQ(grown(start, forward, AllocationKind::kBackward), (Growth{0, 0, 0}));
  EXPECT_EQ(grown(start, forward, AllocationKind::kOutside), (Growth{0, 0, 0}));
  void* outside = c10::GetCPUAllocator()->raw_allocate(100);
  const auto raw = allocator_statistics();
  EXPECT_EQ(grown(forward, raw, AllocationKind::kOutside), (Growth{128, 128, 1}));
  y.backward();
  const auto backward = allocator_statistics();
  // The seed is made before the engine runs, and goes.
  EXPECT_EQ(grown(raw, backward, AllocationKind::kForward), (Growth{0, 64, 1}));
  // The gradient by either factor; their sum stays.
  const Growth made = grown(raw, backward, AllocationKind::kBackward);
  EXPECT_EQ(made.live_bytes, 1024);
  EXPECT_EQ(made.allocated_bytes, made.allocations * 1024);
  EXPECT_GE(made.allocations, 2);
  EXPECT_EQ(grown(raw, backward, AllocationKind::kOutside), (Growth{0, 0, 0}));
  expect_kinds_sum_to_live(backward);
  reset_allocator_statistics();
  const auto reset = allocator_statistics();
  for (std::size_t i = 0; i < kAllocationKinds; ++i) {
    EXPECT_EQ(reset.kinds[i].live_bytes, backward.kinds[i].live_bytes);
    EXPECT_EQ(reset.kinds[i].allocated_bytes, 0);
    EXPECT_EQ(reset.kinds[i].allocations, 0);
  }
  // What was made in one is taken off where it was counted, wherever it ends.
  x.mutable_grad().reset();
  y.reset();
  c10::GetCPUAllocator()->raw_deallocate(outside);
  const auto after = allocator_statistics();
  EXPECT_EQ(grown(reset, after, AllocationKind::kForward), (Growth{-64, 0, 0}));
  EXPECT_EQ(grown(reset, after, AllocationKind::kBackward), (Growth{-1024, 0, 0}));
  EXPECT_EQ(grown(reset, after, AllocationKind::kOutside), (Growth{-128, 0, 0}));
  expect_kinds_sum_to_live(after);
}

TEST_F(AllocatorTest, NamesTheOwnersOfThePeakAlsoAfterTheyAreFreed) {
  {
    auto a = torch::rand({1024, 1024});
    auto b = a.matmul(a);
  }
  const auto figures = allocator_statistics();
  const auto owners = peak_owners();
  ASSERT_GE(owners.size(), 2U);
  EXPECT_EQ(owners[0].bytes, mib(4));
  EXPECT_EQ(owners[1].bytes, mib(4));
  std::int64_t sum = 0;
  for (const auto& owner : peak_owners(1'000'000)) sum += owner.bytes;
  EXPECT_EQ(sum, figures.peak_bytes);
  EXPECT_THAT(figures.peak_op, ::testing::StartsWith("aten::"));
}

TEST_F(AllocatorTest, StoragesFromBeforeTheInstallationKeepTheirOwnDeleter) {
  // The fixture has installed long ago; the heap's own allocator stands in for "before".
  auto* heap = c10::GetDefaultCPUAllocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 4096,
                                                       heap->allocate(4096), heap, true);
  const auto live = allocator_statistics().live_bytes;
  storage.reset();
  EXPECT_EQ(allocator_statistics().live_bytes, live);
}

TEST_F(AllocatorTest, RawInterfaceAndCloneWork) {
  auto* allocator = c10::GetAllocator(c10::DeviceType::CPU);
  const auto live = allocator_statistics().live_bytes;
  void* raw = allocator->raw_allocate(100);
  std::memset(raw, 7, 100);
  auto copy = allocator->clone(raw, 100);
  EXPECT_EQ(static_cast<char*>(copy.get())[99], 7);
  allocator->raw_deallocate(raw);
  copy.clear();
  EXPECT_EQ(allocator_statistics().live_bytes, live);
  EXPECT_EQ(allocator->allocate(0).get(), nullptr);
}

TEST_F(AllocatorTest, ManyThreadsLeaveAnExactAccount) {
  const auto live = allocator_statistics().live_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      std::vector<torch::Tensor> held;
      for (int i = 0; i < 2000; ++i) {
        held.push_back(bytes_tensor(64 * (1 + (i * 7 + t) % 50)));
        if (held.size() > 20) held.erase(held.begin() + (i % 20));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(allocator_statistics().live_bytes, live);
}

TEST_F(AllocatorTest, RefusesANegativeLimit) {
  EXPECT_THROW(install_allocator({.limit_bytes = -1}), InvalidArgument);
}

TEST(Interposer, SelfTestFindsNothingWrong) { EXPECT_EQ(interposer_self_test(), ""); }

TEST_F(AllocatorTest, AHistoryIsASnapshotThatExplainsThePeakToTheByte) {
  EXPECT_THROW(memory_snapshot(), InvalidArgument);
  auto kept = bytes_tensor(5000);  // older than the history
  auto weight = torch::randn({64, 64}, torch::requires_grad());
  record_memory_history();
  reset_allocator_statistics();
  for (int step = 0; step < 3; ++step) {
    auto loss = (torch::relu(torch::mm(weight, weight))).sum();
    loss.backward();
  }
  kept.reset();
  const AllocatorStatistics figures = allocator_statistics();
  const std::string bytes = memory_snapshot();
  record_memory_history(0);
  EXPECT_THROW(memory_snapshot(), InvalidArgument);
  const explain::Snapshot snapshot = explain::read_snapshot(bytes, "history");
  const explain::Explanation e = explain::explain(snapshot, {.alignment_bytes = 64});
  EXPECT_EQ(e.peak_allocated_bytes, figures.peak_bytes);
  EXPECT_EQ(e.allocated_after.back(), figures.live_bytes);
  EXPECT_EQ(e.peak_reserved_bytes, figures.peak_bytes);
  EXPECT_EQ(e.fragmentation_bytes, 0);
  EXPECT_TRUE(e.is_truncated);  // `kept` was freed and never seen to be allocated
  EXPECT_GE(e.planned_arena_bytes, e.load_bytes);
  // By operator, the same as the account says.
  std::map<std::string, std::int64_t> expected;
  for (const PeakOwner& owner : peak_owners(1000))
    expected[owner.operator_name.empty() ? "user code" : owner.operator_name] += owner.bytes;
  std::map<std::string, std::int64_t> found;
  for (const explain::StackAtPeak& stack : e.stacks)
    found[snapshot.stacks[static_cast<std::size_t>(stack.stack)][0].function] += stack.bytes;
  EXPECT_EQ(found, expected);
}

TEST_F(AllocatorTest, AHistoryKeepsTheNewestEvents) {
  record_memory_history(10);
  for (int i = 0; i < 100; ++i) bytes_tensor(64 * (1 + i));
  const explain::Snapshot snapshot = explain::read_snapshot(memory_snapshot(), "history");
  record_memory_history(0);
  std::vector<std::int64_t> sizes;
  for (const explain::TraceEvent& event : snapshot.traces[0])
    if (event.action == explain::TraceAction::kAllocate) sizes.push_back(event.bytes);
  EXPECT_THAT(sizes, ::testing::ElementsAre(64 * 96, 64 * 97, 64 * 98, 64 * 99, 64 * 100));
}

}  // namespace
}  // namespace plimsoll
