// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/greedy.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <tuple>

#include "plan/layout/occupancy.h"

namespace plimsoll::plan::layout_detail {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The gathered address intervals that an item must avoid, relative to its offset.
class HoleFinder {
 public:
  HoleFinder(const Instance& instance, std::int64_t& work)
      : instance_(instance), occupancy_(instance.sections), work_(work) {}

  std::int64_t find(std::size_t item, GreedyFit fit) {
    const Item& it = instance_.items[item];
    if (it.fixed >= 0) return it.fixed;
    gather(item);
    if (it.hint >= 0 && it.hint % it.alignment == 0 && is_free(it.hint, it.size)) return it.hint;
    return fit == GreedyFit::kFirst ? first_fit(it.size, it.alignment)
                                    : best_fit(it.size, it.alignment);
  }

  void occupy(std::size_t item, std::int64_t offset) {
    for (const Piece& p : instance_.pieces_of(item))
      occupancy_.add(p.first, p.last, {offset + p.low, offset + p.high});
  }

 private:
  // For a piece with a window [low, high), an obstacle [a, b) bars offsets in (a - high, b - low);
  // stated for the whole height, [a - high + size, b - low) must be avoided by [offset, offset +
  // size).
  void gather(std::size_t item) {
    blocked_.clear();
    const std::int64_t size = instance_.items[item].size;
    for (const Piece& p : instance_.pieces_of(item)) {
      sets_.clear();
      occupancy_.collect(p.first, p.last, sets_);
      for (const AddressSet* set : sets_) {
        work_ += static_cast<std::int64_t>(set->intervals().size());
        for (const Interval& i : set->intervals())
          blocked_.push_back({i.begin - p.high + size, i.end - p.low});
      }
    }
    std::sort(blocked_.begin(), blocked_.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }

  bool is_free(std::int64_t offset, std::int64_t size) const {
    return std::none_of(blocked_.begin(), blocked_.end(), [&](const Interval& i) {
      return i.begin < offset + size && offset < i.end;
    });
  }

  std::int64_t first_fit(std::int64_t size, std::int64_t alignment) const {
    std::int64_t at = 0;
    for (const Interval& i : blocked_) {
      if (at + size <= i.begin) break;
      at = std::max(at, round_up(std::max<std::int64_t>(i.end, 0), alignment));
    }
    return at;
  }

  std::int64_t best_fit(std::int64_t size, std::int64_t alignment) const {
    std::int64_t at = 0;
    std::int64_t floor = 0;
    std::int64_t best = -1;
    std::int64_t best_rest = kNoLimit;
    for (const Interval& i : blocked_) {
      if (at + size <= i.begin && i.begin - floor - size < best_rest) {
        best_rest = i.begin - floor - size;
        best = at;
      }
      floor = std::max(floor, i.end);
      at = round_up(floor, alignment);
    }
    return best >= 0 ? best : at;
  }

  const Instance& instance_;
  Occupancy occupancy_;
  std::int64_t& work_;
  std::vector<const AddressSet*> sets_;
  std::vector<Interval> blocked_;
};

// For each item the load of its busiest section, by a sparse table over sections.
std::vector<std::int64_t> busiest_loads(const Instance& instance) {
  std::vector<std::vector<std::int64_t>> table{instance.section_loads()};
  for (std::size_t width = 2; width <= table[0].size(); width *= 2) {
    const auto& half = table.back();
    std::vector<std::int64_t> row(table[0].size() - width + 1);
    for (std::size_t s = 0; s < row.size(); ++s) row[s] = std::max(half[s], half[s + width / 2]);
    table.push_back(std::move(row));
  }
  std::vector<std::int64_t> loads(instance.items.size(), 0);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    for (const Piece& p : instance.pieces_of(i)) {
      const auto length = static_cast<std::uint32_t>(p.last - p.first);
      const auto level = static_cast<std::size_t>(std::bit_width(length) - 1);
      const auto& row = table[level];
      loads[i] = std::max({loads[i], row[static_cast<std::size_t>(p.first)],
                           row[static_cast<std::size_t>(p.last) - (std::size_t{1} << level)]});
    }
  }
  return loads;
}

}  // namespace

std::vector<std::int32_t> greedy_order(const Instance& instance, GreedyOrder order) {
  const std::size_t n = instance.items.size();
  const bool needs_loads = order == GreedyOrder::kBusiestSize || order == GreedyOrder::kBusiestArea;
  const std::vector<std::int64_t> loads =
      needs_loads ? busiest_loads(instance) : std::vector<std::int64_t>();
  // Keys fall; fixed items get the highest first key.
  using Key = std::tuple<bool, double, double>;
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) {
    double length = 0;
    for (const Piece& p : instance.pieces_of(i)) length += p.last - p.first;
    const auto size = static_cast<double>(instance.items[i].size);
    const double area = size * length;
    Key key;
    switch (order) {
      case GreedyOrder::kArea:
        key = {false, area, size};
        break;
      case GreedyOrder::kSize:
        key = {false, size, length};
        break;
      case GreedyOrder::kLength:
        key = {false, length, size};
        break;
      case GreedyOrder::kBegin:
        key = {false, -instance.first_section(i), size};
        break;
      case GreedyOrder::kEnd:
        key = {false, instance.last_section(i), size};
        break;
      case GreedyOrder::kBusiestSize:
        key = {false, static_cast<double>(loads[i]), size};
        break;
      case GreedyOrder::kBusiestArea:
        key = {false, static_cast<double>(loads[i]), area};
        break;
      case GreedyOrder::kRootArea:
        key = {false, size * area, size};
        break;
    }
    std::get<0>(key) = instance.items[i].fixed >= 0;
    keys[i] = key;
  }
  std::vector<std::int32_t> result(n);
  std::iota(result.begin(), result.end(), 0);
  std::sort(result.begin(), result.end(), [&](std::int32_t a, std::int32_t b) {
    const Key& ka = keys[static_cast<std::size_t>(a)];
    const Key& kb = keys[static_cast<std::size_t>(b)];
    return ka != kb ? ka > kb : a < b;
  });
  return result;
}

Offsets place_greedily(const Instance& instance, const std::vector<std::int32_t>& order,
                       GreedyFit fit, std::int64_t& work) {
  Offsets offsets(instance.items.size(), 0);
  // A descent through the tree costs about as much as a hundred intervals.
  work += 100 * static_cast<std::int64_t>(instance.items.size());
  HoleFinder finder(instance, work);
  for (const std::int32_t id : order) {
    const auto item = static_cast<std::size_t>(id);
    offsets[item] = finder.find(item, fit);
    finder.occupy(item, offsets[item]);
  }
  return offsets;
}

GreedyBest greedy_suite(const Instance& instance, std::int64_t enough, std::int64_t work_limit,
                        const StopCheck& stop) {
  GreedyBest best;
  best.height = kNoLimit;
  std::int64_t work = 0;
  for (const GreedyOrder name : kGreedyOrders) {
    const std::vector<std::int32_t> order = greedy_order(instance, name);
    for (const GreedyFit fit : {GreedyFit::kFirst, GreedyFit::kBest}) {
      if (best.height != kNoLimit && (work > work_limit || (stop && stop()))) return best;
      Offsets offsets = place_greedily(instance, order, fit, work);
      const std::int64_t height = height_of(instance, offsets);
      if (height < best.height) best = {std::move(offsets), height, order, fit};
      if (best.height <= enough) return best;
    }
  }
  return best;
}

}  // namespace plimsoll::plan::layout_detail
