// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/compaction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace plimsoll::pool {
namespace {

using Kind = CompactionItem::Kind;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Items [begin, end) between two fixed ones.
struct Region {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int64_t free_bytes = 0;
};

bool is_better(const CompactionPlan& a, const CompactionPlan& b) {
  if (a.is_feasible != b.is_feasible) return a.is_feasible;
  if (a.cost != b.cost) return a.cost < b.cost;
  if (a.slid_bytes != b.slid_bytes) return a.slid_bytes < b.slid_bytes;
  return a.hole_offset < b.hole_offset;
}

// Items by rising cost per byte, sorted only as far as somebody looks: of the blocks of a large
// arena few are ever asked for.
class DensityOrder {
 public:
  explicit DensityOrder(std::span<const CompactionItem> items) : items_(items) {}

  void clear() {
    order_.clear();
    sorted_ = 0;
  }
  void add(std::int32_t item) {
    const CompactionItem& added = items_[static_cast<std::size_t>(item)];
    order_.push_back({added.eviction_cost / static_cast<double>(added.bytes), item});
  }

  // Visits in order until `visit` returns false.
  template <typename Visit>
  void visit(const Visit& visit) {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (i == sorted_) sort_more();
      if (!visit(order_[i].item)) return;
    }
  }

 private:
  struct Entry {
    double density;
    std::int32_t item;
  };

  void sort_more() {
    constexpr std::size_t kLeast = 64;
    const std::size_t end = std::min(order_.size(), sorted_ + std::max(kLeast, sorted_));
    const auto place = [&](std::size_t i) {
      return order_.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const auto is_less = [](const Entry& a, const Entry& b) {
      return a.density != b.density ? a.density < b.density : a.item < b.item;
    };
    if (end < order_.size()) std::nth_element(place(sorted_), place(end), order_.end(), is_less);
    std::sort(place(sorted_), place(end), is_less);
    sorted_ = end;
  }

  std::span<const CompactionItem> items_;
  std::vector<Entry> order_;
  std::size_t sorted_ = 0;
};

class Planner {
 public:
  Planner(std::span<const CompactionItem> items, const CompactionRequest& request)
      : items_(items), request_(request), by_density_(items) {
    const auto count = static_cast<std::int32_t>(items.size());
    offsets_.resize(items.size() + 1);
    for (std::int32_t i = 0; i < count; ++i)
      offsets_[index(i + 1)] = offsets_[index(i)] + item(i).bytes;
    for (std::int32_t i = 0; i < count; ++i)
      if (is_evictable(i)) by_density_.add(i);
    find_regions();
  }

  CompactionPlan best() {
    CompactionPlan best;
    if (request_.hole_bytes == 0) {
      CompactionPlan plan;
      settle_debt({}, plan.victims);
      plan.is_feasible = bytes_of(plan.victims) >= request_.evict_bytes;
      sum_up(plan);
      return plan;
    }
    for (const Region& region : regions_) {
      if (region.bytes < request_.hole_bytes) continue;
      consider(best, window_plan(region));
      const std::vector<std::int32_t> cheapest = cheapest_victims(region, by_density_);
      consider(best, joined_plan(region, cheapest, Reach::kArena));
      if (cheapest.size() > 1)
        consider(best, joined_plan(region, single_victim(region), Reach::kArena));
      consider_neighbourhoods(region, best);
    }
    return best;
  }

 private:
  enum class Reach : std::uint8_t { kRegion, kArena };  // where victims may slide to

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  const CompactionItem& item(std::int32_t i) const { return items_[index(i)]; }
  bool is_evictable(std::int32_t i) const {
    return item(i).kind == Kind::kMovable && item(i).eviction_cost < kInfinity;
  }

  void find_regions() {
    const auto count = static_cast<std::int32_t>(items_.size());
    for (std::int32_t begin = 0; begin < count;) {
      if (item(begin).kind == Kind::kFixed) {
        ++begin;
        continue;
      }
      Region region{begin, begin, offsets_[index(begin)], 0, 0};
      for (; region.end < count && item(region.end).kind != Kind::kFixed; ++region.end) {
        region.bytes += item(region.end).bytes;
        if (item(region.end).kind == Kind::kFree) region.free_bytes += item(region.end).bytes;
      }
      regions_.push_back(region);
      begin = region.end;
    }
  }

  // Victims all over a region may have to be joined by long slides. Where slides cost, looks also
  // at neighbourhoods of the hole's size times kNeighbourhood, half overlapping, as if each were
  // the region; there nothing changes regions, which keeps this near linear.
  void consider_neighbourhoods(const Region& region, CompactionPlan& best) {
    constexpr std::int64_t kNeighbourhood = 3;
    constexpr std::int64_t kMost = 24;
    if (request_.slide_cost_per_byte <= 0 || best.slid_bytes == 0) return;
    const std::int64_t length =
        std::max(request_.hole_bytes * kNeighbourhood, region.bytes * 2 / kMost);
    DensityOrder by_density(items_);
    for (std::int32_t begin = region.begin; begin < region.end;) {
      Region part{begin, begin, offsets_[index(begin)], 0, 0};
      by_density.clear();
      std::int32_t next = begin + 1;
      for (; part.end < region.end && part.bytes < length; ++part.end) {
        part.bytes += item(part.end).bytes;
        if (item(part.end).kind == Kind::kFree) part.free_bytes += item(part.end).bytes;
        if (is_evictable(part.end)) by_density.add(part.end);
        if (part.bytes <= length / 2) next = part.end + 1;
      }
      if (part.bytes >= request_.hole_bytes)
        consider(best, joined_plan(part, cheapest_victims(part, by_density), Reach::kRegion));
      if (part.end == region.end) return;
      begin = next;
    }
  }

  void consider(CompactionPlan& best, CompactionPlan plan) const {
    sum_up(plan);
    if (is_better(plan, best)) best = std::move(plan);
  }

  // The cheapest stretch of neighbours whose bytes suffice, all movable ones in it evicted.
  CompactionPlan window_plan(const Region& region) {
    CompactionPlan plan;
    double best_cost = kInfinity;
    std::int32_t best_begin = -1;
    std::int32_t best_end = -1;
    std::int32_t begin = region.begin;
    double cost = 0;
    for (std::int32_t end = region.begin; end < region.end; ++end) {
      if (item(end).kind == Kind::kMovable) {
        if (!is_evictable(end)) {  // no window spans it
          begin = end + 1;
          cost = 0;
          continue;
        }
        cost += item(end).eviction_cost;
      }
      while (begin <= end &&
             offsets_[index(end + 1)] - offsets_[index(begin + 1)] >= request_.hole_bytes) {
        if (item(begin).kind == Kind::kMovable) cost -= item(begin).eviction_cost;
        ++begin;
      }
      if (offsets_[index(end + 1)] - offsets_[index(begin)] < request_.hole_bytes) continue;
      if (cost < best_cost) {
        best_cost = cost;
        best_begin = begin;
        best_end = end + 1;
      }
    }
    if (best_begin < 0) return plan;
    plan.hole_offset = offsets_[index(best_begin)];
    for (std::int32_t i = best_begin; i < best_end; ++i)
      if (item(i).kind == Kind::kMovable) plan.victims.push_back(i);
    // The window stays as it is; only what is owed elsewhere is added.
    std::int64_t owed = request_.evict_bytes - bytes_of(plan.victims);
    by_density_.visit([&](std::int32_t i) {
      if (owed <= 0) return false;
      if (best_begin <= i && i < best_end) return true;
      plan.victims.push_back(i);
      owed -= item(i).bytes;
      return true;
    });
    plan.is_feasible = owed <= 0;
    return plan;
  }

  // Victims by rising cost per byte: one that would complete the request makes a candidate with
  // those kept before it, the others are kept. The best candidate costs at most twice the least.
  // Source: Csirik, Frenk, Labbe, Zhang, "Heuristics for the 0-1 min-knapsack problem", Acta
  // Cybernetica 10 (1991).
  std::vector<std::int32_t> cheapest_victims(const Region& region, DensityOrder& by_density) const {
    std::vector<std::int32_t> kept;
    std::int64_t free_bytes = region.free_bytes;
    double kept_cost = 0;
    double best_cost = kInfinity;
    std::size_t best_kept = 0;
    std::int32_t best_last = -1;
    if (free_bytes >= request_.hole_bytes) return kept;
    by_density.visit([&](std::int32_t i) {
      if (kept_cost >= best_cost) return false;  // no candidate after this can be better
      if (!is_inside(i, region)) return true;
      if (free_bytes + item(i).bytes < request_.hole_bytes) {
        kept.push_back(i);
        kept_cost += item(i).eviction_cost;
        free_bytes += item(i).bytes;
      } else if (kept_cost + item(i).eviction_cost < best_cost) {
        best_cost = kept_cost + item(i).eviction_cost;
        best_kept = kept.size();
        best_last = i;
      }
      return true;
    });
    if (best_last >= 0) {
      kept.resize(best_kept);
      kept.push_back(best_last);
    }
    return kept;
  }

  static bool is_inside(std::int32_t i, const Region& region) {
    return region.begin <= i && i < region.end;
  }

  std::int64_t bytes_of(const std::vector<std::int32_t>& chosen) const {
    return std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int32_t i) { return sum + item(i).bytes; });
  }

  // Adds the cheapest others, from anywhere, until the victims make up what evictions owe; then
  // leaves out what turns out not to be needed, dearest first.
  void settle_debt(const Region& region, std::vector<std::int32_t>& victims) {
    std::int64_t evicted = bytes_of(victims);
    if (evicted < request_.evict_bytes) {
      std::vector<bool> is_victim(items_.size(), false);
      for (const std::int32_t i : victims) is_victim[index(i)] = true;
      by_density_.visit([&](std::int32_t i) {
        if (evicted >= request_.evict_bytes) return false;
        if (is_victim[index(i)]) return true;
        victims.push_back(i);
        evicted += item(i).bytes;
        return true;
      });
    }
    std::int64_t free_bytes = region.free_bytes;
    for (const std::int32_t i : victims)
      if (is_inside(i, region)) free_bytes += item(i).bytes;
    std::vector<std::int32_t> dearest = victims;
    std::sort(dearest.begin(), dearest.end(), [&](std::int32_t a, std::int32_t b) {
      if (item(a).eviction_cost != item(b).eviction_cost)
        return item(a).eviction_cost > item(b).eviction_cost;
      return a < b;
    });
    for (const std::int32_t i : dearest) {
      const std::int64_t bytes = item(i).bytes;
      if (evicted - bytes < request_.evict_bytes) continue;
      if (is_inside(i, region) && free_bytes - bytes < request_.hole_bytes) continue;
      if (is_inside(i, region)) free_bytes -= bytes;
      evicted -= bytes;
      std::erase(victims, i);
    }
  }

  // The cheapest one whose bytes alone suffice; empty where there is none.
  std::vector<std::int32_t> single_victim(const Region& region) const {
    std::int32_t best = -1;
    for (std::int32_t i = region.begin; i < region.end; ++i) {
      if (!is_evictable(i) || region.free_bytes + item(i).bytes < request_.hole_bytes) continue;
      if (best < 0 || item(i).eviction_cost < item(best).eviction_cost) best = i;
    }
    if (best < 0) return {};
    return {best};
  }

  // Makes a plan of evicting `victims` of a region and joining its free bytes.
  CompactionPlan joined_plan(const Region& region, std::vector<std::int32_t> victims, Reach reach) {
    CompactionPlan plan;
    settle_debt(region, victims);
    std::vector<bool> leaves(index(region.end - region.begin), false);
    std::int64_t free_bytes = region.free_bytes;
    for (const std::int32_t i : victims) {
      if (!is_inside(i, region)) continue;
      leaves[index(i - region.begin)] = true;
      free_bytes += item(i).bytes;
    }
    plan.victims = std::move(victims);
    if (reach == Reach::kArena) change_regions(region, plan, leaves, free_bytes);
    if (free_bytes < request_.hole_bytes || bytes_of(plan.victims) < request_.evict_bytes)
      return plan;
    plan.is_feasible = true;
    join(region, leaves, plan);
    return plan;
  }

  // Lets victims slide into holes of other regions where that is cheaper than evicting them, and,
  // where the region cannot serve the request otherwise, obstacles too, largest first.
  void change_regions(const Region& region, CompactionPlan& plan, std::vector<bool>& leaves,
                      std::int64_t& free_bytes) const {
    std::vector<Region> holes;  // of other regions; `offset` and `bytes` are what is left of each
    if (plan.victims.empty() && free_bytes >= request_.hole_bytes) return;
    const auto count = static_cast<std::int32_t>(items_.size());
    for (std::int32_t i = 0; i < count; ++i)
      if (item(i).kind == Kind::kFree && (i < region.begin || i >= region.end))
        holes.push_back({i, i + 1, offsets_[index(i)], item(i).bytes, item(i).bytes});
    if (holes.empty()) return;
    std::vector<std::int32_t> movers = plan.victims;
    std::erase_if(movers, [&](std::int32_t i) { return !is_inside(i, region); });
    std::int64_t evicted = bytes_of(plan.victims);
    std::sort(movers.begin(), movers.end(), [&](std::int32_t a, std::int32_t b) {
      return item(a).bytes != item(b).bytes ? item(a).bytes > item(b).bytes : a < b;
    });
    for (const std::int32_t i : movers) {
      if (slide_cost(item(i).bytes) > item(i).eviction_cost) continue;
      if (evicted - item(i).bytes < request_.evict_bytes || !slide_out(i, holes, plan)) continue;
      evicted -= item(i).bytes;
      std::erase(plan.victims, i);
    }
    if (free_bytes >= request_.hole_bytes) return;
    std::vector<std::int32_t> obstacles;
    for (std::int32_t i = region.begin; i < region.end; ++i)
      if (item(i).kind == Kind::kMovable && !leaves[index(i - region.begin)])
        obstacles.push_back(i);
    std::sort(obstacles.begin(), obstacles.end(), [&](std::int32_t a, std::int32_t b) {
      return item(a).bytes != item(b).bytes ? item(a).bytes > item(b).bytes : a < b;
    });
    for (const std::int32_t i : obstacles) {
      if (free_bytes >= request_.hole_bytes) return;
      if (!slide_out(i, holes, plan)) continue;
      leaves[index(i - region.begin)] = true;
      free_bytes += item(i).bytes;
    }
  }

  double slide_cost(std::int64_t bytes) const {
    return request_.slide_cost_per_byte * static_cast<double>(bytes);
  }

  // Slides an item into the smallest hole that takes it; false where none does.
  bool slide_out(std::int32_t i, std::vector<Region>& holes, CompactionPlan& plan) const {
    Region* best = nullptr;
    for (Region& hole : holes)
      if (hole.bytes >= item(i).bytes && (best == nullptr || hole.bytes < best->bytes))
        best = &hole;
    if (best == nullptr) return false;
    plan.slides.push_back({i, best->offset});
    plan.slid_bytes += item(i).bytes;
    best->offset += item(i).bytes;
    best->bytes -= item(i).bytes;
    return true;
  }

  // Finds the stretch with free bytes enough and the fewest bytes to slide (two pointers; a stretch
  // begins and ends with a free item), and slides what is left in it to one side: away from the
  // region's edge where the stretch begins there, so that the hole lies at the edge.
  void join(const Region& region, const std::vector<bool>& leaves, CompactionPlan& plan) const {
    const auto is_free = [&](std::int32_t i) {
      return item(i).kind == Kind::kFree || leaves[index(i - region.begin)];
    };
    std::int64_t best_slid = std::numeric_limits<std::int64_t>::max();
    std::int32_t best_begin = region.begin;
    std::int32_t best_end = region.end;
    std::int64_t free_bytes = 0;
    std::int64_t slid = 0;
    std::int32_t begin = region.begin;
    for (std::int32_t end = region.begin; end < region.end; ++end) {
      (is_free(end) ? free_bytes : slid) += item(end).bytes;
      while (begin <= end &&
             (!is_free(begin) || free_bytes - item(begin).bytes >= request_.hole_bytes)) {
        (is_free(begin) ? free_bytes : slid) -= item(begin).bytes;
        ++begin;
      }
      if (free_bytes >= request_.hole_bytes && slid < best_slid) {
        best_slid = slid;
        best_begin = begin;
        best_end = end + 1;
      }
    }
    if (best_begin == region.begin)
      slide_right(best_begin, best_end, is_free, plan);
    else
      slide_left(best_begin, best_end, is_free, plan);
    plan.slid_bytes += best_slid;
  }

  template <typename IsFree>
  void slide_left(std::int32_t begin, std::int32_t end, const IsFree& is_free,
                  CompactionPlan& plan) const {
    std::int64_t offset = offsets_[index(begin)];
    for (std::int32_t i = begin; i < end; ++i) {
      if (is_free(i)) continue;
      plan.slides.push_back({i, offset});
      offset += item(i).bytes;
    }
    plan.hole_offset = offset;
  }

  template <typename IsFree>
  void slide_right(std::int32_t begin, std::int32_t end, const IsFree& is_free,
                   CompactionPlan& plan) const {
    std::int64_t offset = offsets_[index(end)];
    for (std::int32_t i = end - 1; i >= begin; --i) {
      if (is_free(i)) continue;
      offset -= item(i).bytes;
      plan.slides.push_back({i, offset});
    }
    plan.hole_offset = offsets_[index(begin)];
  }

  void sum_up(CompactionPlan& plan) const {
    std::sort(plan.victims.begin(), plan.victims.end());
    plan.cost = slide_cost(plan.slid_bytes);
    for (const std::int32_t i : plan.victims) plan.cost += item(i).eviction_cost;
  }

  std::span<const CompactionItem> items_;
  CompactionRequest request_;
  std::vector<std::int64_t> offsets_;
  DensityOrder by_density_;
  std::vector<Region> regions_;
};

}  // namespace

CompactionPlan plan_compaction(std::span<const CompactionItem> items,
                               const CompactionRequest& request) {
  return Planner(items, request).best();
}

}  // namespace plimsoll::pool
