// SPDX-License-Identifier: Apache-2.0
// Lets the n-th device or file call of each kind fail, for every n, over one story of a pool's
// life: each time every block stays readable, the books hold, and trying again finishes the story.
#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pool_fixture.h"

namespace plimsoll::pool {
namespace {

using device::FaultKind;

class Story {
 public:
  Story(bool is_host_addressable, bool with_file)
      : world_({.budget_bytes = 4096,
                .host_limit_bytes = with_file ? 3000 : std::numeric_limits<std::int64_t>::max(),
                .with_file = with_file,
                .is_host_addressable = is_host_addressable}) {}

  device::FaultPlan& faults() { return world_.faults; }
  int retries() const { return retries_; }

  void tell() {
    for (int i = 0; i < 3; ++i) attempt([&] { add(512 + 32 * i); });
    for (int i = 0; i < 3; ++i) begin_evict(i);  // the host has room for these
    world_.pool->synchronize();
    for (int i = 0; i < 3; ++i) begin_fetch(i);
    for (int i = 3; i < 12; ++i) attempt([&] { add(512 + 32 * i); });
    for (int i = 0; i < 12; i += 3) use({i, (i + 5) % 12, (i + 7) % 12}, {.bytes = 700});
    for (int i = 0; i < 12; ++i) begin_evict(i);
    attempt([&] { add(1024); });
    for (int i = 0; i < 12; ++i) begin_fetch(i);
    for (int i = 0; i < 13; i += 2) use({i, (i + 3) % 13}, {.bytes = 512, .pack = i % 4 == 0});
    attempt([&] { world_.pool->reserve_foreign(1500); });
    for (int i = 0; i < 13; ++i) {
      attempt([&] {
        if (world_.pool->residence(block(i)) == Residence::kResident) world_.pool->evict(block(i));
      });
    }
    world_.pool->synchronize();
    world_.pool->release_foreign(1500);
    for (int i = 0; i < 13; ++i) use({i}, {});
    verify();
    std::vector<char> bytes(4096);
    for (int i = 0; i < 13; ++i) {
      attempt([&] { world_.pool->release_to(block(i), bytes.data()); });
      patterns_[static_cast<std::size_t>(i)] = kReleased;
    }
    EXPECT_EQ(world_.pool->stats().live_bytes, 0);
    EXPECT_EQ(world_.pool->stats().host_bytes, 0);
    EXPECT_EQ(world_.pool->stats().file_bytes, 0);
  }

 private:
  static constexpr int kReleased = -1;

  BlockId block(int i) const { return blocks_[static_cast<std::size_t>(i)]; }

  void add(std::int64_t bytes) {
    patterns_.reserve(patterns_.size() + 1);
    blocks_.push_back(world_.make(bytes, static_cast<int>(blocks_.size()) + 1));
    patterns_.push_back(static_cast<int>(blocks_.size()));
  }

  // One operator: reads its operands, then changes the first of them.
  void use(const std::vector<int>& operands, const Room& room) {
    std::vector<BlockId> ids;
    for (const int i : operands) ids.push_back(block(i));
    attempt([&] { world_.pool->acquire(ids, room); });
    for (const int i : operands) {
      EXPECT_EQ(static_cast<unsigned char*>(world_.pool->address(block(i)))[0],
                patterns_[static_cast<std::size_t>(i)]);
    }
    BlockId result;
    if (room.bytes > 0) attempt([&] { result = world_.pool->allocate(room.bytes); });
    world_.pool->mark_written(ids.front());
    world_.write(ids.front(), ++patterns_[static_cast<std::size_t>(operands.front())]);
    world_.pool->release(ids);
    world_.pool->deallocate(result);
  }

  void begin_evict(int i) {
    attempt([&] { world_.pool->begin_evict(block(i)); });
  }
  void begin_fetch(int i) {
    attempt([&] { world_.pool->begin_fetch(block(i)); });
  }

  // Tries once, and where that fails checks that nothing is lost and tries again.
  template <typename Call>
  void attempt(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      ++retries_;
      EXPECT_TRUE(error.code() == ErrorCode::kDeviceError ||
                  error.code() == ErrorCode::kHostOutOfMemory ||
                  error.code() == ErrorCode::kDeviceOutOfMemory)
          << error.what();
      verify();
      call();
    }
    world_.pool->check_invariants();
  }

  void verify() {
    world_.pool->check_invariants();
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      int attempts = 0;
      if (patterns_[i] == kReleased) continue;
      for (bool is_read = false; !is_read; ++attempts) {
        try {
          EXPECT_TRUE(world_.holds(blocks_[i], patterns_[i])) << "block " << i << " lost its bytes";
          is_read = true;
        } catch (const DeviceError&) {
          ASSERT_LT(attempts, 1) << "a block cannot be read twice in a row";
        }
      }
    }
  }

  PoolWorld world_;
  std::vector<BlockId> blocks_;
  std::vector<int> patterns_;
  int retries_ = 0;
};

struct Walk {
  FaultKind kind;
  bool is_host_addressable;
  int at_least;  // calls of this kind the story is known to make
  bool with_file = true;
};
void PrintTo(const Walk& walk, std::ostream* out) { *out << device::fault_kind_name(walk.kind); }

class FaultWalk : public testing::TestWithParam<Walk> {};

TEST_P(FaultWalk, LosesNothingAndFinishesOnASecondTry) {
  int failed = 0;
  for (int nth = 1;; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth));
    Story story(GetParam().is_host_addressable, GetParam().with_file);
    story.faults().reset();
    story.faults().fail(GetParam().kind, nth);
    story.tell();
    if (HasFailure()) return;
    if (story.faults().fired() == 0) {
      EXPECT_EQ(story.retries(), 0) << "something failed without a fault";
      break;
    }
    ++failed;
  }
  EXPECT_GE(failed, GetParam().at_least);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FaultWalk,
    testing::Values(Walk{FaultKind::kCopyOut, true, 20}, Walk{FaultKind::kCopyIn, true, 10},
                    Walk{FaultKind::kSlide, true, 5}, Walk{FaultKind::kLateCopyOut, true, 1},
                    Walk{FaultKind::kLateCopyIn, true, 1}, Walk{FaultKind::kWait, true, 2},
                    Walk{FaultKind::kAllocateHost, true, 1, false},
                    Walk{FaultKind::kAllocateHost, true, 1}, Walk{FaultKind::kFileGrow, true, 1},
                    Walk{FaultKind::kFileWrite, true, 5}, Walk{FaultKind::kFileRead, true, 5},
                    Walk{FaultKind::kCopyOut, false, 20}, Walk{FaultKind::kCopyIn, false, 10},
                    Walk{FaultKind::kAllocateHost, false, 2}, Walk{FaultKind::kFileWrite, false, 5},
                    Walk{FaultKind::kFileRead, false, 5}),
    [](const auto& info) {
      return std::string(device::fault_kind_name(info.param.kind)) +
             (info.param.is_host_addressable ? "" : "_through_a_buffer") +
             (info.param.with_file ? "" : "_without_a_file");
    });

TEST(PoolFaults, AFailedReservationOfTheArenaIsATypedError) {
  device::FaultPlan faults;
  device::HostDeviceOptions options;
  options.faults = &faults;
  device::HostDevice device(options);
  HostTier host(device);
  TablePolicy policy;
  faults.fail(FaultKind::kReserve, 1);
  EXPECT_THROW(TensorPool(device, host, policy, {.budget_bytes = 4096}), DeviceError);
  TensorPool pool(device, host, policy, {.budget_bytes = 4096});
  EXPECT_TRUE(pool.allocate(4096).valid());
}

}  // namespace
}  // namespace plimsoll::pool
