// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/compaction.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::pool {
namespace {

using Kind = CompactionItem::Kind;
using Items = std::vector<CompactionItem>;
using testing::ElementsAre;
using testing::IsEmpty;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// "f40 m20:3 x10 h5": free, movable at cost 3, fixed, movable but not evictable.
Items parse(const std::string& text) {
  Items items;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    CompactionItem item;
    item.kind = word[0] == 'f' ? Kind::kFree : word[0] == 'x' ? Kind::kFixed : Kind::kMovable;
    item.bytes = std::stoll(word.substr(1));
    item.eviction_cost = word[0] == 'h' ? kInfinity : 0;
    if (const auto colon = word.find(':'); colon != std::string::npos)
      item.eviction_cost = std::stod(word.substr(colon + 1));
    items.push_back(item);
    begin = end + 1;
  }
  return items;
}

// Carries a plan out on a picture of the arena, byte by byte; returns what is wrong, or nothing.
std::string fault_of(const Items& items, const CompactionRequest& request,
                     const CompactionPlan& plan) {
  std::vector<int> owner;  // of each byte; -1: free
  std::vector<std::int64_t> offsets;
  for (std::size_t i = 0; i < items.size(); ++i) {
    offsets.push_back(static_cast<std::int64_t>(owner.size()));
    owner.insert(owner.end(), static_cast<std::size_t>(items[i].bytes),
                 items[i].kind == Kind::kFree ? -1 : static_cast<int>(i));
  }
  double cost = 0;
  std::int64_t evicted = 0;
  std::int64_t slid = 0;
  for (const std::int32_t victim : plan.victims) {
    const CompactionItem& item = items[static_cast<std::size_t>(victim)];
    if (item.kind != Kind::kMovable || item.eviction_cost == kInfinity) return "a victim must stay";
    std::replace(owner.begin(), owner.end(), static_cast<int>(victim), -1);
    evicted += item.bytes;
    cost += item.eviction_cost;
  }
  for (const CompactionSlide& slide : plan.slides) {
    const CompactionItem& item = items[static_cast<std::size_t>(slide.item)];
    if (item.kind != Kind::kMovable) return "what slides must be movable";
    if (std::count(owner.begin(), owner.end(), slide.item) != item.bytes) return "it is gone";
    std::replace(owner.begin(), owner.end(), static_cast<int>(slide.item), -1);
    for (std::int64_t byte = slide.offset; byte < slide.offset + item.bytes; ++byte) {
      if (byte < 0 || byte >= static_cast<std::int64_t>(owner.size())) return "outside";
      if (owner[static_cast<std::size_t>(byte)] != -1) return "a slide lands on another block";
      owner[static_cast<std::size_t>(byte)] = slide.item;
    }
    slid += item.bytes;
  }
  for (std::int64_t byte = plan.hole_offset; byte < plan.hole_offset + request.hole_bytes; ++byte)
    if (byte >= static_cast<std::int64_t>(owner.size()) ||
        owner[static_cast<std::size_t>(byte)] != -1)
      return "the hole is not free";
  if (evicted < request.evict_bytes) return "evictions still owe bytes";
  if (slid != plan.slid_bytes) return "slid bytes are miscounted";
  cost += request.slide_cost_per_byte * static_cast<double>(slid);
  if (std::abs(cost - plan.cost) > 1e-9 * (1 + cost)) return "the cost is miscounted";
  return "";
}

// The least cost of victims, slides being free, if blocks stay in their regions; infinite where no
// subset will do.
double least_cost(const Items& items, const CompactionRequest& request) {
  double best = kInfinity;
  for (std::size_t subset = 0; subset < (std::size_t{1} << items.size()); ++subset) {
    double cost = 0;
    std::int64_t evicted = 0;
    std::int64_t region_free = 0;
    std::int64_t best_free = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool is_chosen = (subset >> i & 1) != 0;
      if (items[i].kind == Kind::kFixed) region_free = 0;
      if (items[i].kind == Kind::kFree) region_free += items[i].bytes;
      if (is_chosen) {
        cost += items[i].kind == Kind::kMovable ? items[i].eviction_cost : kInfinity;
        evicted += items[i].bytes;
        region_free += items[i].bytes;
      }
      best_free = std::max(best_free, region_free);
    }
    if (best_free >= request.hole_bytes && evicted >= request.evict_bytes)
      best = std::min(best, cost);
  }
  return best;
}

TEST(PlanCompaction, EvictsNothingWhereSlidingIsEnough) {
  const CompactionPlan plan = plan_compaction(parse("m10:5 f10 m10:5 f10"), {.hole_bytes = 20});
  ASSERT_TRUE(plan.is_feasible);
  EXPECT_THAT(plan.victims, IsEmpty());
  EXPECT_EQ(plan.slid_bytes, 10);
  EXPECT_EQ(plan.hole_offset, 20);
}

TEST(PlanCompaction, WeighsASlideAgainstAnEviction) {
  const Items items = parse("m100:5 f10 m10:1 f10 m100:5");
  const CompactionPlan cheap = plan_compaction(items, {.hole_bytes = 30});
  EXPECT_THAT(cheap.victims, ElementsAre(2));
  EXPECT_THAT(cheap.slides, IsEmpty());
  const CompactionPlan dear =
      plan_compaction(parse("f10 m100:50 f10"), {.hole_bytes = 20, .slide_cost_per_byte = 1});
  EXPECT_THAT(dear.victims, ElementsAre(1));
  const CompactionPlan slid =
      plan_compaction(parse("f10 m100:150 f10"), {.hole_bytes = 20, .slide_cost_per_byte = 1});
  EXPECT_THAT(slid.victims, IsEmpty());
  EXPECT_EQ(slid.slid_bytes, 100);
}

TEST(PlanCompaction, SlidesBlocksIntoOtherRegionsRatherThanEvictThem) {
  const Items items = parse("m10:4 f10 x5 f10 x5 f5");
  const CompactionPlan plan = plan_compaction(items, {.hole_bytes = 20});
  ASSERT_TRUE(plan.is_feasible);
  EXPECT_THAT(plan.victims, IsEmpty());
  EXPECT_EQ(fault_of(items, {.hole_bytes = 20}, plan), "");
}

TEST(PlanCompaction, MovesOperandsOutOfTheWayButNeverEvictsThem) {
  const Items items = parse("h10 f10 m10:1 h10 f10 m10:1");
  const CompactionRequest request{.hole_bytes = 40};
  const CompactionPlan plan = plan_compaction(items, request);
  ASSERT_TRUE(plan.is_feasible);
  EXPECT_EQ(fault_of(items, request, plan), "");
  EXPECT_FALSE(plan_compaction(items, {.hole_bytes = 41}).is_feasible);
}

// The cheapest victims lie at both ends; where slides cost, two dearer neighbours are taken.
TEST(PlanCompaction, TakesNeighboursWhereSlidesCost) {
  const Items items = parse("m10:1 m50:9 m10:2 m10:2 m50:9 m10:1");
  const CompactionPlan cheap = plan_compaction(items, {.hole_bytes = 20});
  EXPECT_THAT(cheap.victims, ElementsAre(0, 5));
  const CompactionPlan near =
      plan_compaction(items, {.hole_bytes = 20, .slide_cost_per_byte = 0.05});
  EXPECT_THAT(near.victims, ElementsAre(2, 3));
  EXPECT_EQ(near.slid_bytes, 0);
}

TEST(PlanCompaction, PutsTheHoleAtTheEdgeOfTheRegion) {
  const CompactionPlan plan =
      plan_compaction(parse("f10 m10:1 f10 m10:1 m50:9"), {.hole_bytes = 20});
  EXPECT_EQ(plan.hole_offset, 0);
}

TEST(PlanCompaction, EvictsWhatIsOwedElsewhereWithoutAHole) {
  const Items items = parse("m10:9 m10:1 x10 m10:2");
  const CompactionPlan plan = plan_compaction(items, {.evict_bytes = 15});
  EXPECT_THAT(plan.victims, ElementsAre(1, 3));
  EXPECT_FALSE(plan_compaction(items, {.evict_bytes = 31}).is_feasible);
}

TEST(PlanCompaction, FindsValidPlansWheneverOneExistsAndAtMostTwiceTheLeastCost) {
  double worst = 1;
  double sum = 0;
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    std::mt19937_64 random(seed);
    Items items;
    bool has_fixed = false;
    const std::size_t length = 1 + random() % 10;
    for (std::size_t i = 0; i < length; ++i) {
      CompactionItem item;
      const auto kind = random() % 10;
      item.kind = kind < 3                    ? Kind::kFree
                  : kind < 9 || seed % 2 == 0 ? Kind::kMovable
                                              : Kind::kFixed;
      if (item.kind == Kind::kFree && !items.empty() && items.back().kind == Kind::kFree)
        item.kind = Kind::kMovable;
      has_fixed |= item.kind == Kind::kFixed;
      item.bytes = 1 + static_cast<std::int64_t>(random() % 30);
      item.eviction_cost = kind == 8 ? kInfinity : static_cast<double>(random() % 50);
      items.push_back(item);
    }
    CompactionRequest request;
    request.hole_bytes = 1 + static_cast<std::int64_t>(random() % 100);
    if (seed % 3 == 0) request.slide_cost_per_byte = 0.01 * static_cast<double>(random() % 300);
    if (random() % 3 == 0) request.evict_bytes = static_cast<std::int64_t>(random() % 60);
    const double least = least_cost(items, request);
    const CompactionPlan plan = plan_compaction(items, request);
    ASSERT_TRUE(plan.is_feasible || least == kInfinity) << "seed " << seed;
    if (!plan.is_feasible) continue;
    ASSERT_EQ(fault_of(items, request, plan), "") << "seed " << seed;
    if (has_fixed || request.evict_bytes > 0 || request.slide_cost_per_byte > 0) continue;
    ASSERT_GE(plan.cost, least - 1e-9) << "seed " << seed;
    ASSERT_LE(plan.cost, 2 * least + 1e-9) << "seed " << seed;
    if (least > 0) {
      worst = std::max(worst, plan.cost / least);
      sum += plan.cost / least;
      ++count;
    }
  }
  RecordProperty("worst", std::to_string(worst));
  RecordProperty("mean", std::to_string(sum / count));
}

}  // namespace
}  // namespace plimsoll::pool
