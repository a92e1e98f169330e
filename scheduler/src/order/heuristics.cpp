// SPDX-License-Identifier: Apache-2.0
#include "heuristics.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "state.h"

namespace plimsoll::order {
namespace {

// Post-order of the operators along `edges`, roots from `first` on in steps of `step`.
std::vector<std::int32_t> post_order(const Problem& problem, const Rows& edges, bool from_last) {
  const std::int32_t ops = problem.op_count();
  std::vector<std::int32_t> order, stack, next(ops, 0);
  std::vector<std::uint8_t> seen(ops, 0);
  order.reserve(ops);
  for (std::int32_t i = 0; i < ops; ++i) {
    const std::int32_t root = from_last ? ops - 1 - i : i;
    if (seen[root] != 0) continue;
    seen[root] = 1;
    stack.push_back(root);
    while (!stack.empty()) {
      const std::int32_t o = stack.back();
      const auto row = edges[o];
      if (next[o] == static_cast<std::int32_t>(row.size())) {
        order.push_back(o);
        stack.pop_back();
        continue;
      }
      const std::int32_t to = row[next[o]++];
      if (seen[to] != 0) continue;
      seen[to] = 1;
      stack.push_back(to);
    }
  }
  return order;
}

}  // namespace

std::vector<std::int32_t> greedy_order(const Problem& problem) {
  using Entry = std::tuple<std::int64_t, std::int64_t, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  State state(problem);
  const auto push = [&](std::int32_t o) { queue.emplace(state.net(o), state.rise(o), o); };
  for (const std::int32_t o : state.ready()) push(o);
  while (!queue.empty()) {
    const auto [net, rise, o] = queue.top();
    queue.pop();
    // An entry whose figures have changed since was pushed anew when they did.
    if (!state.is_ready(o) || net != state.net(o) || rise != state.rise(o)) continue;
    state.run(o);
    for (const std::int32_t t : state.touched())
      if (state.is_ready(t)) push(t);
    state.touched().clear();
  }
  return state.executed();
}

std::vector<std::int32_t> depth_first_order(const Problem& problem) {
  return post_order(problem, problem.before, false);
}

std::vector<std::int32_t> reverse_post_order(const Problem& problem) {
  std::vector<std::int32_t> order = post_order(problem, problem.after, true);
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace plimsoll::order
