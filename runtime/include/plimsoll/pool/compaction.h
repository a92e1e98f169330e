// SPDX-License-Identifier: Apache-2.0
// Chooses what to evict and what to slide so that one hole of a given size appears.
//
// Nouns: CompactionItem, CompactionRequest, CompactionPlan.
//
//     |fixed| m1 |..| m2 |....| m3 |fixed|...       fixed items part the arena into regions
//            '------- region -----'
//
// Inside a region every free byte can be joined by sliding, so a region serves a request as soon
// as its free bytes and those of the victims chosen in it suffice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll::pool {

// One stretch of the arena; items follow one another without gaps, the first at offset 0.
struct CompactionItem {
  enum class Kind : std::uint8_t { kFree, kMovable, kFixed };
  Kind kind = Kind::kFree;
  std::int64_t bytes = 0;
  double eviction_cost = 0;  // of a movable one; infinite: it may only be slid
};

struct CompactionRequest {
  std::int64_t hole_bytes = 0;     // >= 0; one free piece of this size
  std::int64_t evict_bytes = 0;    // victims must add up to this at least (bytes owed elsewhere)
  double slide_cost_per_byte = 0;  // >= 0
};

struct CompactionSlide {
  std::int32_t item = 0;
  std::int64_t offset = 0;  // new
};

struct CompactionPlan {
  bool is_feasible = false;
  std::vector<std::int32_t> victims;    // ascending
  std::vector<CompactionSlide> slides;  // after the evictions, one after another in this order;
                                        // each target is free then, but for the item itself
  std::int64_t hole_offset = 0;
  std::int64_t slid_bytes = 0;
  double cost = 0;  // of victims and slides
};

// Returns the cheapest of a few plans for each region: the cheapest window of neighbours to evict;
// the cheapest victims by cost per byte (at most twice the least cost, slides aside); the cheapest
// single victim; and, where slides cost, the cheapest victims of neighbourhoods a few holes long.
// The shortest slides then join the free bytes. Victims and obstacles slide into holes of other
// regions where that is cheaper or the only way. Ties: fewest bytes slid, then the lowest offset.
// Complete where one region is concerned: feasible whenever evicting all that may be would do.
// Pure. Cost: O(k log k) in the items, O(k * holes) where items change regions.
CompactionPlan plan_compaction(std::span<const CompactionItem> items,
                               const CompactionRequest& request);

}  // namespace plimsoll::pool
