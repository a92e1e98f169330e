// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/problem.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::order {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;

void check_index(std::int32_t index, std::int32_t limit, const char* what, const char* where) {
  if (index < 0 || index >= limit)
    throw InvalidArgument(
        fmt::format("{}: {} {} does not exist; there are {}", where, what, index, limit));
}

void sort_unique(Pairs& pairs) {
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
}

void check_input(const ProblemInput& input) {
  const auto storages = static_cast<std::int32_t>(input.storages.size());
  const auto ops = static_cast<std::size_t>(input.ops);
  if (input.ops < 0) throw InvalidArgument("a problem cannot have fewer than 0 operators");
  if (!input.extra.empty() && input.extra.size() != ops)
    throw InvalidArgument(
        fmt::format("extra: {} entries for {} operators", input.extra.size(), ops));
  std::int64_t sum = input.base_bytes;
  for (std::int32_t v = 0; v < storages; ++v) {
    const Storage& storage = input.storages[v];
    if (storage.bytes < 0)
      throw InvalidArgument(
          fmt::format("storage {}: {} bytes; must be 0 or more", v, storage.bytes));
    sum = checked_add(sum, storage.bytes);
  }
  for (const std::int64_t extra : input.extra)
    sum = checked_add(sum, std::max<std::int64_t>(extra, 0));
  if (sum > kMostBytes)
    throw InvalidArgument(fmt::format("the sizes add up to {} bytes; at most 2^62", sum));
  for (const auto& [v, op] : input.reads) {
    check_index(v, storages, "storage", "reads");
    check_index(op, input.ops, "operator", "reads");
  }
  for (const auto& [v, op] : input.births) {
    check_index(v, storages, "storage", "births");
    check_index(op, input.ops, "operator", "births");
  }
  for (const auto& [op, v] : input.overwrites) {
    check_index(op, input.ops, "operator", "overwrites");
    check_index(v, storages, "storage", "overwrites");
  }
  for (const auto& [from, to] : input.precedence) {
    check_index(from, input.ops, "operator", "precedence");
    check_index(to, input.ops, "operator", "precedence");
  }
}

// Walks predecessors that are themselves stuck until one repeats: a cycle.
[[noreturn]] void throw_cycle(const Problem& problem, const std::vector<std::int32_t>& waiting) {
  std::int32_t op = 0;
  while (waiting[op] == 0) ++op;
  std::vector<std::int32_t> seen(waiting.size(), -1), path;
  while (seen[op] < 0) {
    seen[op] = static_cast<std::int32_t>(path.size());
    path.push_back(op);
    for (const std::int32_t p : problem.before[op]) {
      if (waiting[p] == 0) continue;
      op = p;
      break;
    }
  }
  path.erase(path.begin(), path.begin() + seen[op]);
  std::reverse(path.begin(), path.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(path.size(), 12); ++i)
    text += fmt::format("{} -> ", path[i]);
  if (path.size() > 12) text += "... -> ";
  throw InvalidArgument(
      fmt::format("the operators wait for one another in a cycle: {}{}", text, path[0]));
}

std::vector<std::int32_t> waiting_counts(const Problem& problem) {
  std::vector<std::int32_t> waiting(static_cast<std::size_t>(problem.op_count()));
  for (std::int32_t o = 0; o < problem.op_count(); ++o)
    waiting[o] = static_cast<std::int32_t>(problem.before[o].size());
  return waiting;
}

void check_acyclic(const Problem& problem) {
  std::vector<std::int32_t> waiting = waiting_counts(problem), stack;
  for (std::int32_t o = 0; o < problem.op_count(); ++o)
    if (waiting[o] == 0) stack.push_back(o);
  std::int32_t done = 0;
  while (!stack.empty()) {
    const std::int32_t o = stack.back();
    stack.pop_back();
    ++done;
    for (const std::int32_t s : problem.after[o])
      if (--waiting[s] == 0) stack.push_back(s);
  }
  if (done != problem.op_count()) throw_cycle(problem, waiting);
}

}  // namespace

Rows::Rows(std::size_t rows, std::span<const std::pair<std::int32_t, std::int32_t>> pairs)
    : starts_(rows + 1, 0), items_(pairs.size()) {
  if (pairs.size() > 0x7fffffffU)
    throw InvalidArgument(fmt::format("{} edges; at most 2^31 - 1", pairs.size()));
  for (const auto& pair : pairs) ++starts_[static_cast<std::size_t>(pair.first) + 1];
  for (std::size_t r = 0; r < rows; ++r) starts_[r + 1] += starts_[r];
  std::vector<std::int32_t> next(starts_.begin(), starts_.end() - 1);
  for (const auto& pair : pairs)
    items_[static_cast<std::size_t>(next[static_cast<std::size_t>(pair.first)]++)] = pair.second;
}

void Rows::add_row(std::span<const std::int32_t> items) {
  items_.insert(items_.end(), items.begin(), items.end());
  starts_.push_back(static_cast<std::int32_t>(items_.size()));
}

Rows Rows::transposed(std::size_t items) const {
  Rows result;
  result.starts_.assign(items + 1, 0);
  result.items_.resize(items_.size());
  for (const std::int32_t item : items_) ++result.starts_[static_cast<std::size_t>(item) + 1];
  for (std::size_t i = 0; i < items; ++i) result.starts_[i + 1] += result.starts_[i];
  std::vector<std::int32_t> next(result.starts_.begin(), result.starts_.end() - 1);
  for (std::size_t row = 0; row < size(); ++row)
    for (std::int32_t i = starts_[row]; i < starts_[row + 1]; ++i) {
      const auto item = static_cast<std::size_t>(items_[i]);
      result.items_[static_cast<std::size_t>(next[item]++)] = static_cast<std::int32_t>(row);
    }
  return result;
}

Problem build_problem(ProblemInput input) {
  check_input(input);
  Problem problem;
  const auto ops = static_cast<std::size_t>(input.ops);
  const std::size_t storages = input.storages.size();
  problem.base_bytes = input.base_bytes;
  problem.bytes.reserve(storages);
  problem.kept.reserve(storages);
  for (std::size_t v = 0; v < storages; ++v) {
    const Storage& storage = input.storages[v];
    problem.bytes.push_back(storage.bytes);
    problem.kept.push_back(storage.kept ? 1 : 0);
  }
  sort_unique(input.births);
  problem.births = Rows(storages, input.births);
  problem.results = problem.births.transposed(ops);
  Pairs().swap(input.births);
  sort_unique(input.reads);
  problem.readers = Rows(storages, input.reads);
  problem.operands = problem.readers.transposed(ops);
  for (const auto& [v, op] : input.reads) {
    const auto births = problem.births[v];
    if (births.size() == 1 && births[0] != op) input.precedence.emplace_back(births[0], op);
  }
  Pairs().swap(input.reads);
  sort_unique(input.precedence);
  problem.after = Rows(ops, input.precedence);
  Pairs().swap(input.precedence);
  problem.before = problem.after.transposed(ops);
  problem.extra = input.extra.empty() ? std::vector<std::int64_t>(ops, 0) : std::move(input.extra);
  sort_unique(input.overwrites);
  for (const auto& [op, v] : input.overwrites) {
    const auto row = problem.operands[op];
    if (!std::binary_search(row.begin(), row.end(), v))
      throw InvalidArgument(
          fmt::format("operator {} overwrites storage {}, which it does not read", op, v));
  }
  problem.overwrites = Rows(ops, input.overwrites);
  check_acyclic(problem);
  problem.program = input.program.empty() ? smallest_order(problem) : std::move(input.program);
  if (!is_topological(problem, problem.program))
    throw InvalidArgument("the program's order is not a topological order of the operators");
  return problem;
}

Profile profile(const Problem& problem, std::span<const std::int32_t> order) {
  if (!is_topological(problem, order))
    throw InvalidArgument(
        "the order is not a permutation of the operators that respects precedence");
  std::vector<std::int32_t> left(problem.bytes.size());
  std::vector<std::uint8_t> born(problem.bytes.size(), 0);
  std::int64_t level = problem.base_bytes;
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    const auto i = static_cast<std::size_t>(v);
    left[i] = static_cast<std::int32_t>(problem.readers[v].size());
    if (problem.from_start(v) && problem.survives(v)) level += problem.bytes[i];
  }
  Profile result;
  result.rest.reserve(order.size() + 1);
  result.run.reserve(order.size());
  result.rest.push_back(level);
  result.peak = level;
  for (const std::int32_t o : order) {
    std::int64_t run = level + problem.extra[o];
    std::int64_t rest = level;
    for (const std::int32_t v : problem.results[o]) {
      if (std::exchange(born[v], std::uint8_t{1}) != 0) continue;
      run += problem.bytes[v];
      if (problem.survives(v)) rest += problem.bytes[v];
    }
    for (const std::int32_t v : problem.operands[o]) {
      const auto i = static_cast<std::size_t>(v);
      if (--left[i] > 0 || problem.kept[i] != 0) continue;
      rest -= problem.bytes[i];
      if (problem.is_overwritten(v, o)) run -= problem.bytes[i];
    }
    if (run > result.peak) {
      result.peak = run;
      result.peak_position = static_cast<std::int32_t>(result.run.size());
    }
    result.run.push_back(run);
    result.rest.push_back(rest);
    level = rest;
  }
  return result;
}

bool is_topological(const Problem& problem, std::span<const std::int32_t> order) {
  const auto ops = static_cast<std::size_t>(problem.op_count());
  if (order.size() != ops) return false;
  std::vector<std::uint8_t> done(ops, 0);
  for (const std::int32_t o : order) {
    if (o < 0 || o >= problem.op_count() || done[o] != 0) return false;
    for (const std::int32_t p : problem.before[o])
      if (done[p] == 0) return false;
    done[o] = 1;
  }
  return true;
}

std::vector<std::int32_t> smallest_order(const Problem& problem) {
  std::vector<std::int32_t> waiting = waiting_counts(problem), order;
  order.reserve(waiting.size());
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  for (std::int32_t o = 0; o < problem.op_count(); ++o)
    if (waiting[o] == 0) ready.push(o);
  while (!ready.empty()) {
    const std::int32_t o = ready.top();
    ready.pop();
    order.push_back(o);
    for (const std::int32_t s : problem.after[o])
      if (--waiting[s] == 0) ready.push(s);
  }
  return order;
}

}  // namespace plimsoll::order
