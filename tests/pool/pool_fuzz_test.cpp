// SPDX-License-Identifier: Apache-2.0
// Random operations on the pool beside a simple model, the invariant walker after each.
#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pool_fixture.h"

namespace plimsoll::pool {
namespace {

constexpr std::int64_t kAlignment = 64;

// Sanitizers slow the walk by a factor of ten and more; a tenth of it still meets everything.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 10;
#else
constexpr int kSlowdown = 1;
#endif

// What the model knows of one block.
struct Item {
  BlockId id;
  std::int64_t bytes = 0;
  int pattern = 0;
  bool is_bound = false;
  int pins = 0;

  bool is_immovable() const { return pins > 0 || !is_bound; }
};

struct FuzzCase {
  std::string name;
  PoolOptions options;
  int operations = 0;
};

void PrintTo(const FuzzCase& fuzz_case, std::ostream* out) { *out << fuzz_case.name; }

class PoolFuzz {
 public:
  PoolFuzz(const FuzzCase& fuzz_case, std::uint64_t seed)
      : options_(fuzz_case.options), world_(options_), random_(seed) {
    world_.policy.slide_cost_per_byte = seed % 2 == 0 ? 0.0 : 0.01;
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      step();
      const PoolStatistics stats = world_.pool->stats();
      ASSERT_LE(stats.live_bytes, options_.budget_bytes);
      ASSERT_LE(stats.peak_bytes, options_.budget_bytes);
      ASSERT_EQ(stats.pinned_bytes, immovable_bytes() + foreign_);
      ASSERT_EQ(stats.blocks, static_cast<std::int64_t>(items_.size()));
      ASSERT_NO_THROW(world_.pool->check_invariants());
      if (i % 256 == 0) verify_all();
      if (i % 1024 == 0) synchronize_and_check_books();
    }
    verify_all();
  }
  PoolStatistics stats() const { return world_.pool->stats(); }

 private:
  std::int64_t pick(std::int64_t below) {
    return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random_);
  }
  Item* any() {
    return items_.empty()
               ? nullptr
               : &items_[static_cast<std::size_t>(pick(static_cast<std::int64_t>(items_.size())))];
  }
  std::int64_t random_size() {
    const std::int64_t top = pick(20) == 0 ? options_.budget_bytes : options_.budget_bytes / 12;
    return 1 + pick(top);
  }
  static std::int64_t rounded(std::int64_t bytes) { return align_up(bytes, kAlignment); }

  std::int64_t immovable_bytes() const {
    std::int64_t bytes = 0;
    for (const Item& item : items_)
      if (item.is_immovable()) bytes += rounded(item.bytes);
    return bytes;
  }

  // The longest stretch between blocks that may not move.
  std::int64_t longest_gap() {
    std::vector<std::pair<std::intptr_t, std::int64_t>> fixed;
    for (const Item& item : items_)
      if (item.is_immovable())
        fixed.emplace_back(reinterpret_cast<std::intptr_t>(world_.pool->address(item.id)) - base(),
                           rounded(item.bytes));
    std::sort(fixed.begin(), fixed.end());
    std::int64_t end = 0;
    std::int64_t longest = 0;
    for (const auto& [offset, bytes] : fixed) {
      longest = std::max<std::int64_t>(longest, offset - end);
      end = offset + bytes;
    }
    const std::int64_t capacity = options_.budget_bytes / kAlignment * kAlignment;
    return std::max(longest, capacity - end);
  }
  // The arena starts on a page, and nothing else does below it that the pool calls its own.
  std::intptr_t base() {
    if (base_ != 0 || items_.empty()) return base_;
    const auto address = reinterpret_cast<std::intptr_t>(world_.pool->address(items_.front().id));
    std::intptr_t page = address & ~std::intptr_t{4095};
    while (world_.pool->contains(reinterpret_cast<void*>(page - 1))) page -= 4096;
    return base_ = page;
  }

  void fill(Item& item) {
    item.pattern = static_cast<int>(pick(255));
    world_.write(item.id, item.pattern);
  }

  void verify_all() {
    for (const Item& item : items_)
      ASSERT_TRUE(world_.holds(item.id, item.pattern))
          << "block " << item.id.value() << " lost its bytes";
    for (const Item& item : items_) {
      if (!item.is_bound || world_.pool->residence(item.id) == Residence::kMovingIn) continue;
      ASSERT_EQ(world_.follower.address(item.id), world_.pool->address(item.id));
    }
  }

  // After all copies: every byte of the budget is accounted for.
  void synchronize_and_check_books() {
    world_.pool->synchronize();
    std::int64_t live = foreign_;
    for (const Item& item : items_)
      if (world_.pool->residence(item.id) == Residence::kResident) live += rounded(item.bytes);
    ASSERT_EQ(world_.pool->stats().live_bytes, live);
    ASSERT_EQ(world_.pool->stats().free_bytes, options_.budget_bytes - live);
  }

  void allocate(std::int64_t bytes) {
    const std::int64_t range = rounded(bytes);
    const bool must_fit = options_.host_limit_bytes == std::numeric_limits<std::int64_t>::max() &&
                          range + immovable_bytes() + foreign_ <= options_.budget_bytes &&
                          range <= longest_gap();
    try {
      Item item{world_.pool->allocate(bytes), bytes, 0, false, 0};
      world_.follower.place(item.id, world_.pool->address(item.id));
      fill(item);
      items_.push_back(item);
      base();
    } catch (const DeviceOutOfMemory&) {
      ASSERT_FALSE(must_fit) << "a request of " << bytes << " that fits was refused";
      verify_all();
    } catch (const HostOutOfMemory&) {
      ASSERT_FALSE(must_fit);
      verify_all();
    }
  }

  void free_item(Item& item) {
    world_.pool->deallocate(item.id);
    world_.follower.forget(item.id);
    item = items_.back();
    items_.pop_back();
  }

  void acquire() {
    std::vector<std::size_t> chosen;
    std::vector<BlockId> ids;
    std::int64_t needed = foreign_;
    const std::int64_t count = pick(5);
    for (std::int64_t i = 0; i < count && !items_.empty(); ++i) {
      chosen.push_back(static_cast<std::size_t>(pick(static_cast<std::int64_t>(items_.size()))));
      ids.push_back(items_[chosen.back()].id);
    }
    Room room;
    if (pick(2) == 0) room.bytes = random_size();
    room.is_guess = pick(4) == 0;
    room.pack = pick(4) == 0;
    // What fits must succeed where nothing else is immovable.
    bool is_free_of_others = true;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const bool is_named = std::find(chosen.begin(), chosen.end(), i) != chosen.end();
      if (items_[i].is_immovable()) is_free_of_others = false;
      if (is_named) needed += rounded(items_[i].bytes);
    }
    if (!room.is_guess) needed += rounded(room.bytes);
    const bool must_fit = is_free_of_others && needed <= options_.budget_bytes &&
                          options_.host_limit_bytes == std::numeric_limits<std::int64_t>::max();
    try {
      world_.pool->acquire(ids, room);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == ErrorCode::kDeviceOutOfMemory ||
                  error.code() == ErrorCode::kHostOutOfMemory)
          << error.what();
      ASSERT_FALSE(must_fit) << error.what();
      verify_all();
      return;
    }
    for (const std::size_t i : chosen) ++items_[i].pins;
    for (const BlockId id : ids) ASSERT_EQ(world_.pool->residence(id), Residence::kResident);
    if (room.bytes > 0 && !room.is_guess) {
      const BlockId result = world_.pool->allocate(room.bytes);  // no throw: the room is there
      world_.pool->deallocate(result);
    }
    for (const std::size_t i : chosen) {
      if (pick(3) != 0) continue;
      world_.pool->mark_written(items_[i].id);
      fill(items_[i]);
    }
    if (pick(16) == 0) return;  // stays pinned for a while
    world_.pool->release(ids);
    for (const std::size_t i : chosen) --items_[i].pins;
  }

  void step() {
    Item* const item = any();
    const std::int64_t action = pick(100);
    const bool is_crowded = items_.size() > 80;
    if (item == nullptr || action < (is_crowded ? 10 : 20)) return allocate(random_size());
    if (action < (is_crowded ? 28 : 24)) return free_item(*item);
    if (action < 50) return acquire();
    if (action < 66) {
      for (Item& each : items_) bind(each);
    } else if (action < 67) {
      if (!item->is_bound || world_.pool->residence(item->id) != Residence::kResident) return;
      world_.pool->unbind(item->id);
      item->is_bound = false;
    } else if (action < 78) {
      for (; item->pins > 0; --item->pins) world_.pool->unpin(item->id);
    } else if (action < 92) {
      move(*item, action);
    } else if (action < 93) {
      resize(*item);
    } else if (action < 94) {
      allocate_below(random_size());
    } else if (action < 97) {
      rewrite_in_parts(*item);
    } else {
      foreign(action);
    }
  }

  void bind(Item& item) {
    if (item.is_bound) return;
    world_.pool->bind(item.id, &world_.follower);
    item.is_bound = true;
  }

  void move(const Item& item, std::int64_t action) {
    if (action == 78) return world_.pool->synchronize();
    if (action < 82) return world_.pool->poll();
    if (action < 85) {
      if (item.is_immovable()) return;
      try {
        world_.pool->evict(item.id);
      } catch (const HostOutOfMemory&) {
        verify_all();
      }
    } else if (action < 89) {
      world_.pool->begin_evict(item.id);
    } else {
      world_.pool->begin_fetch(item.id);
    }
  }

  // Larger than the arena, sometimes.
  void allocate_below(std::int64_t bytes) {
    const std::int64_t large = pick(4) == 0 ? 2 * bytes : bytes;
    try {
      Item item{world_.pool->allocate_below(large, &world_.follower), large, 0, true, 0};
      world_.follower.place(item.id, nullptr);
      items_.push_back(item);
      rewrite_in_parts(items_.back());
    } catch (const HostOutOfMemory&) {
      verify_all();
    }
  }

  void rewrite_in_parts(Item& item) {
    const int pattern = static_cast<int>(pick(255));
    const std::vector<unsigned char> fresh(static_cast<std::size_t>(item.bytes),
                                           static_cast<unsigned char>(pattern));
    const std::int64_t cut = pick(item.bytes + 1);
    world_.pool->write_part(item.id, cut, fresh.data(), item.bytes - cut);
    world_.pool->write_part(item.id, 0, fresh.data(), cut);
    item.pattern = pattern;
    std::vector<unsigned char> read(static_cast<std::size_t>(item.bytes - cut));
    world_.pool->read_part(item.id, cut, read.data(), item.bytes - cut);
    ASSERT_TRUE(std::equal(read.begin(), read.end(), fresh.begin()));
  }

  // As a tensor grows: new memory, the bytes copied, the old memory freed.
  void resize(Item& item) {
    const int pattern = item.pattern;
    const std::size_t before = items_.size();
    const auto place = static_cast<std::size_t>(&item - items_.data());
    allocate(random_size());
    if (items_.size() == before) return;
    items_.back().pattern = pattern;
    world_.write(items_.back().id, pattern);
    free_item(items_[place]);
  }

  void foreign(std::int64_t action) {
    if (action < 98) {
      const std::int64_t bytes = pick(options_.budget_bytes / 16);
      try {
        world_.pool->reserve_foreign(bytes);
        foreign_ += bytes;
      } catch (const Error&) {
        verify_all();
      }
    } else {
      const std::int64_t bytes = pick(foreign_ + 1);
      world_.pool->release_foreign(bytes);
      foreign_ -= bytes;
    }
  }

  PoolOptions options_;
  PoolWorld world_;
  std::mt19937_64 random_;
  std::vector<Item> items_;
  std::int64_t foreign_ = 0;
  std::intptr_t base_ = 0;
};

class PoolFuzzTest : public testing::TestWithParam<FuzzCase> {};

TEST_P(PoolFuzzTest, KeepsTheBudgetTheBytesAndTheBooks) {
  constexpr int kSeeds = 5;
  const int operations = GetParam().operations / kSeeds / kSlowdown;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PoolFuzz fuzz(GetParam(), seed);
    fuzz.run(operations);
    if (HasFailure()) return;
    // The walk means something only where it met all of these often.
    const PoolStatistics stats = fuzz.stats();
    const std::int64_t often = operations / 100;
    EXPECT_GT(stats.evictions, often);
    EXPECT_GT(stats.clean_evictions, often / 4);
    EXPECT_GT(stats.fetches, often);
    EXPECT_GT(stats.slides, often / 4);
    if (GetParam().options.with_file) {
      EXPECT_GT(stats.file_bytes, 0);
    }
  }
}

// 1.14 million operations in all.
INSTANTIATE_TEST_SUITE_P(
    Pool, PoolFuzzTest,
    testing::Values(FuzzCase{"HostWithoutLimit", {.budget_bytes = 16384}, 400'000},
                    FuzzCase{"OddBudget", {.budget_bytes = 10001}, 300'000},
                    FuzzCase{
                        "HostLimit", {.budget_bytes = 16384, .host_limit_bytes = 20000}, 200'000},
                    FuzzCase{"SpillingToAFile",
                             {.budget_bytes = 16384, .host_limit_bytes = 8192, .with_file = true},
                             100'000},
                    FuzzCase{"SpillingToASmallFileThroughABuffer",
                             {.budget_bytes = 16384,
                              .host_limit_bytes = 8192,
                              .with_file = true,
                              .file_limit_bytes = 16384,
                              .is_host_addressable = false},
                             100'000},
                    FuzzCase{"LargeBlocks", {.budget_bytes = 1 << 20}, 40'000}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plimsoll::pool
