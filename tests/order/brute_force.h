// SPDX-License-Identifier: Apache-2.0
// The least peak of a small graph, by dynamic programming over all sets of ops. Written from the
// memory model's sentences, not from the solvers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "plimsoll/graph/graph.h"

namespace plimsoll::order::testing {

class BruteForce {
 public:
  explicit BruteForce(const graph::Graph& graph) : graph_(graph) {}

  // 2^ops states; meant for up to 14 ops.
  std::int64_t least_peak() const {
    const auto ops = graph_.op_count();
    const std::uint32_t all = (1U << ops) - 1;
    std::vector<std::int64_t> best(std::size_t{1} << ops, kNever);
    best[0] = level(0, -1);
    for (std::uint32_t done = 0; done <= all; ++done) {
      if (best[done] == kNever) continue;
      for (std::size_t o = 0; o < ops; ++o) {
        const std::uint32_t bit = 1U << o;
        if ((done & bit) != 0 || !is_ready(done, o)) continue;
        const std::int64_t here =
            std::max({best[done], level(done, static_cast<int>(o)), level(done | bit, -1)});
        best[done | bit] = std::min(best[done | bit], here);
      }
    }
    return best[all];
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  bool is_ready(std::uint32_t done, std::size_t op) const {
    for (const graph::OpId p : graph_.predecessors(graph::OpId(op)))
      if ((done >> p.index() & 1) == 0) return false;
    return true;
  }

  // Bytes live when `done` have run and `running` (-1: none) runs.
  std::int64_t level(std::uint32_t done, int running) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < graph_.storage_count(); ++i) {
      const graph::StorageId s(i);
      bool born = graph_.live_at_start(s), freed = !graph_.live_at_end(s);
      for (const graph::OpId b : graph_.births(s))
        born = born || (done >> b.index() & 1) != 0 || static_cast<int>(b.index()) == running;
      for (const graph::OpId t : graph_.touchers(s)) {
        const bool over = static_cast<int>(t.index()) == running && graph_.inplace_storage(t) == s;
        freed = freed && ((done >> t.index() & 1) != 0 || over);
      }
      if (born && !freed) sum += graph_.size_bytes(s);
    }
    if (running >= 0) sum += graph_.workspace_bytes(graph::OpId(static_cast<std::size_t>(running)));
    return sum;
  }

  const graph::Graph& graph_;
};

}  // namespace plimsoll::order::testing
