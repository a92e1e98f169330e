// SPDX-License-Identifier: Apache-2.0
// Fusion: a smaller problem with the same optimum.
//
// Nouns: FusionRules, Fused.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plimsoll/order/problem.h"

namespace plimsoll::order {

// Each rule keeps the optimum, alone and together with any others.
struct FusionRules {
  // p;o where p is o's one predecessor, o never grows the level and never rises above p.
  bool forward = true;
  // p;o where o is p's one successor, p never lowers the level and never rises above o.
  bool lazy = true;
  // The same two where p and o have no other neighbour: private chains become the hills and valleys
  // of Liu, "An application of generalized tree pebbling to sparse matrix factorization" (1987).
  bool chains = true;
  // A reader that is an ancestor of another reader of the same storage is no reader.
  bool readers = true;
  // An edge beside a longer path is no edge.
  bool transitive = true;
  // Of two operators that cannot be told apart the first runs first.
  bool twins = true;
};

struct Fused {
  Problem problem;
  Rows members;                        // per fused operator, the original ones in order
  std::vector<std::int32_t> storages;  // per fused storage, the original one
  std::int32_t rounds = 0;
};

// Applies the rules until none changes anything. A storage that lives inside one fused operator
// becomes part of its extra. O(size) a round; a chain of n operators takes about log2 n rounds.
// `stop` may end it after any round. Deterministic.
Fused fuse(const Problem& problem, const FusionRules& rules,
           const std::function<bool()>& stop = {});

// The original order behind an order of the fused operators.
std::vector<std::int32_t> unfuse(const Fused& fused, const std::vector<std::int32_t>& order);

}  // namespace plimsoll::order
