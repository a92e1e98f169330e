// SPDX-License-Identifier: Apache-2.0
// What was there before Plimsoll: other allocators, storages that LibTorch's own has made, a graph.
// Each case in a process of its own, since an allocator is installed once.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

#include "equality.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kUnit = 64 << 10;  // bytes

class BeforeInstallation : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void exit_after(const std::function<void()>& body) {
  body();
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < test->total_part_count(); ++i) {
    const auto& part = test->GetTestPartResult(i);
    if (part.failed()) std::cerr << "line " << part.line_number() << ": " << part.message() << '\n';
  }
  std::_Exit(test->Failed() ? 1 : 0);
}

torch::Tensor numbered(std::int64_t units) { return torch::arange(units * kUnit / 4, at::kFloat); }

// Fills an arena of this size with one tensor, so that all else leaves.
void press(std::int64_t count) { torch::empty({count * kUnit / 4}); }

// As a profiler's or another memory library's: in front of LibTorch's own. Its memory is known by a
// context that is not the address.
class OtherAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto* memory = new c10::DataPtr(c10::GetDefaultCPUAllocator()->allocate(bytes));
    live_bytes += static_cast<std::int64_t>(bytes);
    return {memory->get(), memory, &OtherAllocator::end, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  std::int64_t live_bytes = 0;

 private:
  static void end(void* context) { delete static_cast<c10::DataPtr*>(context); }
};

TEST_F(BeforeInstallation, AnAllocatorOfHigherPriorityIsNamedAndNothingIsHalfDone) {
  const auto body = [] {
    static OtherAllocator other;
    c10::SetCPUAllocator(&other, /*priority=*/2);
    const auto names_it = ThrowsMessage<Unsupported>(HasSubstr("SetCPUAllocator"));
    EXPECT_THAT([] { install_allocator({.limit_bytes = mib(1)}); }, names_it);
    EXPECT_THAT([] { Session session({.budget_bytes = mib(1)}); }, names_it);
    EXPECT_EQ(c10::GetCPUAllocator(), &other);
    EXPECT_EQ(allocator_statistics().limit_bytes, 0);
    // Neither a limit nor an interposer was left behind.
    torch::Tensor x = torch::ones({1 << 20});
    EXPECT_EQ(x.add(1).sum().item<float>(), 2.0F * (1 << 20));
    EXPECT_EQ(allocator_statistics().live_bytes, 0);
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

TEST_F(BeforeInstallation, AnAllocatorThatCameInFrontLaterIsNamedByTheNextSession) {
  const auto body = [] {
    install_allocator();
    {
      Session session({.budget_bytes = mib(1)});
    }
    static OtherAllocator other;
    c10::SetCPUAllocator(&other, /*priority=*/2);
    EXPECT_THROW(Session session({.budget_bytes = mib(1)}), Unsupported);
    EXPECT_THROW(install_allocator({.limit_bytes = mib(1)}), Unsupported);
    EXPECT_EQ(allocator_statistics().limit_bytes, 0);
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

TEST_F(BeforeInstallation, AnAllocatorOfTheSamePriorityMakesWay) {
  const auto body = [] {
    install_allocator();
    c10::Allocator* const ours = c10::GetCPUAllocator();
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), /*priority=*/1);
    {
      Session session({.budget_bytes = 2 * kUnit});
      EXPECT_EQ(c10::GetCPUAllocator(), ours);
      const auto step = session.step();
      EXPECT_THROW(torch::ones({kUnit}), c10::OutOfMemoryError);
    }
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 1);
    install_allocator({.limit_bytes = kUnit});
    EXPECT_THROW(torch::empty({kUnit}), c10::OutOfMemoryError);
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

// A loss and what it was computed from.
struct Graph {
  torch::Tensor weight;
  torch::Tensor loss;
  static Graph made() {
    torch::manual_seed(7);
    Graph graph;
    graph.weight = torch::randn({64, 64}, torch::requires_grad());
    const auto x = torch::randn({32, 64});
    graph.loss = torch::tanh(torch::mm(x, graph.weight)).mul(torch::sigmoid(x)).pow(2).sum();
    return graph;
  }
};

c10::DeleterFnPtr deleter_of(const torch::Tensor& tensor) {
  return tensor.storage().data_ptr().get_deleter();
}

TEST_F(BeforeInstallation, AGraphFromBeforeGoesBackAndItsStoragesEndByTheirOwnDeleter) {
  const auto body = [] {
    Graph stock = Graph::made();
    stock.loss.backward();
    Graph graph = Graph::made();
    torch::Tensor old = numbered(1);
    install_allocator({.limit_bytes = mib(1)});
    EXPECT_EQ(allocator_statistics().live_bytes, 0);
    graph.loss.backward();
    EXPECT_TRUE(same_bits(graph.weight.grad(), stock.weight.grad()));
    EXPECT_EQ(allocator_statistics().live_bytes, 64 * 64 * 4);  // the gradient
    const c10::DeleterFnPtr heaps = c10::GetDefaultCPUAllocator()->raw_deleter();
    EXPECT_EQ(deleter_of(old), heaps);
    EXPECT_EQ(deleter_of(graph.weight), heaps);
    EXPECT_NE(deleter_of(graph.weight.grad()), heaps);
    old.reset();
    stock = Graph();
    EXPECT_EQ(allocator_statistics().live_bytes, 64 * 64 * 4);
    graph = Graph();
    EXPECT_EQ(allocator_statistics().live_bytes, 0);
    EXPECT_EQ(allocator_statistics().live_blocks, 0);
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

TEST_F(BeforeInstallation, AGraphFromBeforeASessionLeavesTheArenaAndGoesBack) {
  const auto body = [] {
    Graph stock = Graph::made();
    stock.loss.backward();
    Graph graph = Graph::made();
    torch::Tensor old = numbered(1);
    install_allocator();
    {
      Session session({.budget_bytes = 6 * kUnit, .poison = true});
      const auto step = session.step();
      old.add_(1);
      graph.weight.sum();
      press(6);
      EXPECT_TRUE(is_out(old));
      EXPECT_TRUE(is_out(graph.weight));
      graph.loss.backward();
      EXPECT_TRUE(same_bits(graph.weight.grad().clone(), stock.weight.grad().clone()));
      EXPECT_TRUE(old.equal(numbered(1) + 1));
      EXPECT_EQ(session.report().foreign_bytes, 0);
      EXPECT_EQ(allocator_statistics().live_bytes, 0);  // all of it is in the arena
    }
    EXPECT_TRUE(same_bits(old, numbered(1) + 1));
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

TEST_F(BeforeInstallation, AStorageOfLibTorchsOwnGrowsInsideTheBudget) {
  const auto body = [] {
    torch::Tensor old = numbered(1);
    torch::Tensor none = torch::empty({0});
    Session session({.budget_bytes = 6 * kUnit, .poison = true});
    const auto step = session.step();
    old.resize_({3 * kUnit / 4});
    EXPECT_TRUE(session.holds(old.storage()));
    EXPECT_EQ(session.report().peak_bytes, 4 * kUnit);  // the old bytes and the new
    EXPECT_TRUE(old.narrow(0, 0, kUnit / 4).equal(numbered(1)));
    EXPECT_THROW(old.resize_({6 * kUnit / 4}), c10::OutOfMemoryError);
    EXPECT_TRUE(old.narrow(0, 0, kUnit / 4).equal(numbered(1)));
    press(6);
    EXPECT_TRUE(is_out(old));
    EXPECT_TRUE(old.narrow(0, 0, kUnit / 4).equal(numbered(1)));
    // One without bytes, which no session had reason to take over.
    torch::arange_out(none, kUnit / 4);
    EXPECT_TRUE(session.holds(none.storage()));
    press(6);
    EXPECT_TRUE(is_out(none));
    EXPECT_TRUE(none.equal(numbered(1)));
    EXPECT_THROW(none.resize_({7 * kUnit / 4}), c10::OutOfMemoryError);
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

TEST_F(BeforeInstallation, AStorageThatGrowsByAnotherAllocatorStaysThereAndCounts) {
  const auto body = [] {
    static OtherAllocator other;
    c10::SetCPUAllocator(&other, /*priority=*/1);
    torch::Tensor old = numbered(1);
    install_allocator();
    Session session({.budget_bytes = 6 * kUnit, .poison = true});
    const auto step = session.step();
    old.add_(0);
    EXPECT_EQ(session.report().foreign_bytes, kUnit);
    old.resize_({3 * kUnit / 4});
    EXPECT_EQ(session.report().foreign_bytes, 3 * kUnit);
    old.narrow(0, 0, 8).add_(0);
    EXPECT_EQ(session.report().foreign_bytes, 3 * kUnit);
    EXPECT_TRUE(old.narrow(0, 0, kUnit / 4).equal(numbered(1)));
  };
  EXPECT_EXIT(exit_after(body), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plimsoll
