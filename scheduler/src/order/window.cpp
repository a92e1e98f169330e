// SPDX-License-Identifier: Apache-2.0
#include "window.h"

#include <algorithm>

namespace plimsoll::order {

Timeline::Timeline(const Problem& problem, std::vector<std::int32_t> in)
    : order(std::move(in)),
      levels(profile(problem, order)),
      position(problem.op_count()),
      first_birth(problem.storage_count(), -1),
      last_reader(problem.storage_count(), -1) {
  for (std::int32_t p = 0; p < problem.op_count(); ++p) position[order[p]] = p;
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    const auto births = problem.births[v];
    if (!births.empty()) {
      first_birth[v] = problem.op_count();
      for (const std::int32_t b : births) first_birth[v] = std::min(first_birth[v], position[b]);
    }
    for (const std::int32_t r : problem.readers[v])
      last_reader[v] = std::max(last_reader[v], position[r]);
    if (problem.kept[v] != 0) last_reader[v] = problem.op_count();
  }
}

namespace {

// Storages that the stretch gives birth to or frees: the others are there throughout, or never.
std::vector<std::int32_t> storages_of_window(const Problem& problem, const Timeline& timeline,
                                             std::int32_t begin, std::int32_t end) {
  std::vector<std::int32_t> list;
  for (std::int32_t p = begin; p < end; ++p) {
    for (const std::int32_t v : problem.results[timeline.order[p]])
      if (timeline.first_birth[v] >= begin) list.push_back(v);
    for (const std::int32_t v : problem.operands[timeline.order[p]])
      if (timeline.first_birth[v] >= begin || timeline.last_reader[v] < end) list.push_back(v);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

// The overwrites of the window's operators, among the window's storages.
void add_overwrites(const Problem& problem, const Timeline& timeline, std::int32_t begin,
                    const std::vector<std::int32_t>& storages, ProblemInput& input) {
  for (std::int32_t p = 0; p < input.ops; ++p) {
    for (const std::int32_t v : problem.overwrites[timeline.order[begin + p]]) {
      const auto found = std::lower_bound(storages.begin(), storages.end(), v);
      if (found != storages.end() && *found == v)
        input.overwrites.emplace_back(p, static_cast<std::int32_t>(found - storages.begin()));
    }
  }
}

}  // namespace

Problem window_problem(const Problem& problem, const Timeline& timeline, std::int32_t begin,
                       std::int32_t end) {
  const std::vector<std::int32_t> storages = storages_of_window(problem, timeline, begin, end);
  const auto inside = [&](std::int32_t op) {
    return timeline.position[op] >= begin && timeline.position[op] < end;
  };
  ProblemInput input;
  input.ops = end - begin;
  input.base_bytes = timeline.levels.rest[begin];
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const std::int32_t v = storages[i];
    const auto local = static_cast<std::int32_t>(i);
    input.storages.push_back({problem.bytes[v], timeline.last_reader[v] >= end});
    if (timeline.first_birth[v] < begin) {
      input.base_bytes -= problem.bytes[v];
    } else {
      for (const std::int32_t b : problem.births[v])
        if (inside(b)) input.births.emplace_back(local, timeline.position[b] - begin);
    }
    for (const std::int32_t r : problem.readers[v])
      if (inside(r)) input.reads.emplace_back(local, timeline.position[r] - begin);
  }
  for (std::int32_t p = begin; p < end; ++p) {
    const std::int32_t op = timeline.order[p];
    for (const std::int32_t s : problem.after[op])
      if (inside(s)) input.precedence.emplace_back(p - begin, timeline.position[s] - begin);
    input.extra.push_back(problem.extra[op]);
    input.program.push_back(p - begin);
  }
  add_overwrites(problem, timeline, begin, storages, input);
  return build_problem(std::move(input));
}

std::vector<std::int32_t> separators(const Problem& problem, const Timeline& timeline) {
  const std::int32_t ops = problem.op_count();
  // latest[p]: the earliest position of a later operator's last predecessor, over all from p on.
  std::vector<std::int32_t> earliest_need(ops + 1, ops);
  for (std::int32_t p = ops - 1; p >= 0; --p) {
    std::int32_t last = -1;
    for (const std::int32_t b : problem.before[timeline.order[p]])
      last = std::max(last, timeline.position[b]);
    earliest_need[p] = std::min(earliest_need[p + 1], last);
  }
  std::vector<std::int32_t> result = {0};
  std::int32_t furthest_first = -1;  // over operators before p: position of the first successor
  for (std::int32_t p = 0; p < ops; ++p) {
    // All before p lead to p: each has a successor at or before p. All behind come from p.
    if (furthest_first <= p && earliest_need[p + 1] >= p && p + 1 < ops) result.push_back(p + 1);
    std::int32_t first = ops;
    for (const std::int32_t s : problem.after[timeline.order[p]])
      first = std::min(first, timeline.position[s]);
    furthest_first = std::max(furthest_first, first);
  }
  if (ops > 0) result.push_back(ops);
  return result;
}

}  // namespace plimsoll::order
