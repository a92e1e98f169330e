// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/range_allocator.h"

#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/base/error.h"

namespace plimsoll::pool {
namespace {

TEST(RangeAllocator, TakesTheSmallestHoleThatFitsAndTheLowestOfEqualOnes) {
  RangeAllocator ranges(1000, 1);
  std::vector<SegmentId> ids;
  for (const int bytes : {100, 10, 50, 10, 100, 10, 50}) ids.push_back(*ranges.allocate(bytes));
  for (const std::size_t i : {0, 2, 4, 6}) ranges.deallocate(ids[i]);
  // Holes: [0,100) [110,160) [170,270) [280,1000).
  EXPECT_EQ(ranges.offset(*ranges.allocate(40)), 110);
  EXPECT_EQ(ranges.offset(*ranges.allocate(90)), 0);
  EXPECT_EQ(ranges.offset(*ranges.allocate(95)), 170);
  EXPECT_EQ(ranges.offset(*ranges.allocate(200)), 280);
  EXPECT_EQ(ranges.largest_free_bytes(), 520);
  EXPECT_FALSE(ranges.allocate(521).has_value());
  ranges.check_invariants();
}

TEST(RangeAllocator, JoinsNeighboursAtOnce) {
  RangeAllocator ranges(300, 1);
  const SegmentId a = *ranges.allocate(100);
  const SegmentId b = *ranges.allocate(100);
  const SegmentId c = *ranges.allocate(100);
  ranges.deallocate(a);
  ranges.deallocate(c);
  EXPECT_EQ(ranges.largest_free_bytes(), 100);
  ranges.deallocate(b);
  EXPECT_EQ(ranges.largest_free_bytes(), 300);
  EXPECT_EQ(ranges.segment_count(), 1);
  ranges.check_invariants();
}

TEST(RangeAllocator, RoundsSizesUpAndTheCapacityDown) {
  RangeAllocator ranges(1000, 64);
  EXPECT_EQ(ranges.capacity(), 960);
  EXPECT_EQ(ranges.bytes(*ranges.allocate(1)), 64);
  EXPECT_EQ(ranges.used_bytes(), 64);
  EXPECT_EQ(RangeAllocator(63, 64).allocate(1), std::nullopt);
}

TEST(RangeAllocator, FindsSegmentsByTheBytesInThem) {
  RangeAllocator ranges(100, 1);
  const SegmentId a = *ranges.allocate(10);
  const SegmentId b = *ranges.allocate(20);
  ranges.deallocate(a);
  EXPECT_EQ(ranges.offset(ranges.at_offset(0)), 0);
  EXPECT_EQ(ranges.offset(ranges.at_offset(9)), 0);
  EXPECT_EQ(ranges.at_offset(10), b);
  EXPECT_EQ(ranges.at_offset(29), b);
  EXPECT_EQ(ranges.offset(ranges.at_offset(30)), 30);
  EXPECT_EQ(ranges.offset(ranges.at_offset(99)), 30);
}

TEST(RangeAllocator, VisitsFreeSegmentsFromASizeUpwards) {
  RangeAllocator ranges(1000, 1);
  std::vector<SegmentId> ids;
  for (const int bytes : {100, 10, 50, 10, 100, 10, 720}) ids.push_back(*ranges.allocate(bytes));
  for (const std::size_t i : {0, 2, 4}) ranges.deallocate(ids[i]);
  const auto offsets = [&](std::int64_t bytes, std::size_t most) {
    std::vector<std::int64_t> seen;
    ranges.visit_free(bytes, [&](SegmentId segment) {
      seen.push_back(ranges.offset(segment));
      return seen.size() < most;
    });
    return seen;
  };
  EXPECT_EQ(offsets(1, 9), (std::vector<std::int64_t>{110, 0, 170}));
  EXPECT_EQ(offsets(51, 9), (std::vector<std::int64_t>{0, 170}));
  EXPECT_EQ(offsets(51, 1), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(offsets(101, 9), std::vector<std::int64_t>());
}

TEST(RangeAllocator, RefusesWhatMakesNoSense) {
  EXPECT_THROW(RangeAllocator(-1, 64), InvalidArgument);
  EXPECT_THROW(RangeAllocator(64, 48), InvalidArgument);
  RangeAllocator ranges(256, 64);
  const SegmentId used = *ranges.allocate(64);
  EXPECT_THROW(ranges.allocate_at(used, 0, 64), InternalError);
  EXPECT_THROW(ranges.allocate_at(ranges.next(used), 0, 64), InternalError);
}

// The same walk on the allocator and on a map of used ranges searched from end to end.
TEST(RangeAllocator, AgreesWithAnExhaustiveSearchOverRandomWalks) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    constexpr std::int64_t kCapacity = 4096;
    RangeAllocator ranges(kCapacity, 16);
    std::map<std::int64_t, std::int64_t> used;  // offset -> bytes
    std::vector<SegmentId> ids;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0 || ids.empty()) {
        const std::int64_t bytes = (1 + static_cast<std::int64_t>(random() % 400) + 15) / 16 * 16;
        std::int64_t best_offset = -1;
        std::int64_t best_bytes = kCapacity + 1;
        std::int64_t end = 0;
        used[kCapacity] = 0;
        for (const auto& [offset, length] : used) {
          if (offset - end >= bytes && offset - end < best_bytes) {
            best_offset = end;
            best_bytes = offset - end;
          }
          end = offset + length;
        }
        used.erase(kCapacity);
        const auto segment = ranges.allocate(bytes);
        ASSERT_EQ(segment.has_value(), best_offset >= 0);
        if (!segment) continue;
        ASSERT_EQ(ranges.offset(*segment), best_offset);
        used[best_offset] = bytes;
        ids.push_back(*segment);
      } else {
        const std::size_t victim = random() % ids.size();
        used.erase(ranges.offset(ids[victim]));
        ranges.deallocate(ids[victim]);
        ids[victim] = ids.back();
        ids.pop_back();
      }
      ASSERT_NO_THROW(ranges.check_invariants());
    }
  }
}

}  // namespace
}  // namespace plimsoll::pool
