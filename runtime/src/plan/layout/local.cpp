// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/local.h"

#include <algorithm>
#include <random>

namespace plimsoll::plan::layout_detail {
namespace {

// Positions move forward by a random part of their distance to the front.
std::vector<std::int32_t> promote(const Instance& instance, const GreedyBest& current,
                                  std::int64_t threshold, std::mt19937_64& random) {
  const std::size_t n = current.order.size();
  std::vector<double> key(n);
  for (std::size_t k = 0; k < n; ++k) {
    const auto i = static_cast<std::size_t>(current.order[k]);
    key[i] = static_cast<double>(k);
    if (instance.items[i].fixed >= 0) {
      key[i] -= static_cast<double>(n);
    } else if (current.offsets[i] + instance.items[i].size > threshold) {
      // Two random bits choose how far: a little, half way, nearly to the front.
      const double part = static_cast<double>(random() % 1000 + 1) / 1000.0;
      key[i] *= 1.0 - part;
    }
  }
  std::vector<std::int32_t> order = current.order;
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return key[static_cast<std::size_t>(a)] < key[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace

std::int64_t improve_order(const Instance& instance, GreedyBest& best, const LocalLimits& limits,
                           const StopCheck& stop) {
  std::mt19937_64 random(limits.seed);
  GreedyBest current = best;
  std::int64_t work = 0;
  std::int64_t moves = 0;
  std::int64_t since_best = 0;
  while (moves < limits.moves && work < limits.work && best.height > limits.enough) {
    if (stop && stop()) break;
    GreedyBest next;
    next.fit = random() % 4 == 0
                   ? (current.fit == GreedyFit::kFirst ? GreedyFit::kBest : GreedyFit::kFirst)
                   : current.fit;
    const std::int64_t threshold =
        limits.enough +
        static_cast<std::int64_t>(static_cast<double>(current.height - limits.enough) *
                                  (static_cast<double>(random() % 1000) / 1000.0));
    next.order = promote(instance, current, threshold, random);
    next.offsets = place_greedily(instance, next.order, next.fit, work);
    next.height = height_of(instance, next.offsets);
    ++moves;
    ++since_best;
    // A slightly worse order is accepted now and then; after a long drought the best returns.
    if (next.height < best.height) {
      best = next;
      since_best = 0;
    }
    const double slack = static_cast<double>(best.height - limits.enough) * 0.3;
    if (next.height <= current.height || static_cast<double>(next.height - best.height) <= slack)
      current = std::move(next);
    if (since_best > 50) {
      current = best;
      since_best = 0;
    }
  }
  return moves;
}

}  // namespace plimsoll::plan::layout_detail
