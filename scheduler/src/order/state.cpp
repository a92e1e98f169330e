// SPDX-License-Identifier: Apache-2.0
#include "state.h"

namespace plimsoll::order {

State::State(const Problem& problem)
    : problem_(problem),
      waiting_(problem.op_count()),
      left_(problem.storage_count()),
      left_xor_(problem.storage_count(), 0),
      net_(problem.op_count()),
      rise_(problem.extra),
      place_(problem.op_count(), -1),
      executed_at_(problem.op_count(), -1),
      level_(problem.base_bytes) {
  for (std::int32_t o = 0; o < problem.op_count(); ++o) {
    for (const std::int32_t v : problem.results[o]) {
      rise_[o] += problem.bytes[v];
      if (problem.survives(v)) net_[o] += problem.bytes[v];
    }
    waiting_[o] = static_cast<std::int32_t>(problem.before[o].size());
    if (waiting_[o] == 0) {
      place_[o] = static_cast<std::int32_t>(ready_.size());
      ready_.push_back(o);
    }
  }
  for (std::int32_t v = 0; v < problem.storage_count(); ++v) {
    if (problem.births[v].size() > 1) has_shared_births_ = true;
    if (problem.from_start(v) && problem.survives(v)) level_ += problem.bytes[v];
    left_[v] = static_cast<std::int32_t>(problem.readers[v].size());
    for (const std::int32_t r : problem.readers[v]) left_xor_[v] ^= r;
    if (left_[v] == 1 && problem.kept[v] == 0) add_last_reader(v, -1);
  }
  if (has_shared_births_) born_.assign(problem.storage_count(), 0);
}

// Storage v has one reader left, or (sign +1) no longer: that reader frees it.
void State::add_last_reader(std::int32_t v, std::int64_t sign) {
  const std::int32_t last = left_xor_[v];
  net_[last] += sign * problem_.bytes[v];
  if (problem_.is_overwritten(v, last)) rise_[last] += sign * problem_.bytes[v];
}

// Storages that several operators may give birth to cost the others nothing once one has run.
void State::add_births(std::int32_t op, std::int64_t sign) {
  for (const std::int32_t v : problem_.results[op]) {
    const auto births = problem_.births[v];
    if (births.size() < 2) continue;
    if (sign > 0) --born_[v];
    const bool first = born_[v] == 0;
    if (sign < 0) ++born_[v];
    if (!first) continue;
    for (const std::int32_t other : births) {
      if (other == op) continue;
      rise_[other] += sign * problem_.bytes[v];
      if (problem_.survives(v)) net_[other] += sign * problem_.bytes[v];
      if (sign < 0) touched_.push_back(other);
    }
  }
}

void State::run(std::int32_t op) {
  const std::int32_t place = place_[op];
  const std::int32_t moved = ready_.back();
  ready_[place] = moved;
  place_[moved] = place;
  ready_.pop_back();
  place_[op] = -1;
  executed_at_[op] = static_cast<std::int32_t>(trail_.size());
  trail_.push_back(op);
  trail_place_.push_back(place);
  level_ += net_[op];
  const std::uint64_t bits = mix_bits(static_cast<std::uint64_t>(op) + 1);
  key_.first ^= bits;
  key_.second ^= mix_bits(bits);
  if (has_shared_births_) add_births(op, -1);
  for (const std::int32_t v : problem_.operands[op]) {
    left_xor_[v] ^= op;
    if (--left_[v] != 1 || problem_.kept[v] != 0) continue;
    add_last_reader(v, -1);
    touched_.push_back(left_xor_[v]);
  }
  const auto after = problem_.after[op];
  for (const std::int32_t s : after) {
    if (--waiting_[s] != 0) continue;
    place_[s] = static_cast<std::int32_t>(ready_.size());
    ready_.push_back(s);
    touched_.push_back(s);
  }
  work_ += static_cast<std::int64_t>(1 + problem_.operands[op].size() + after.size());
}

void State::undo() {
  const std::int32_t op = trail_.back();
  const auto after = problem_.after[op];
  for (auto s = after.rbegin(); s != after.rend(); ++s) {
    if (waiting_[*s]++ != 0) continue;
    ready_.pop_back();
    place_[*s] = -1;
  }
  const auto operands = problem_.operands[op];
  for (auto v = operands.rbegin(); v != operands.rend(); ++v) {
    if (left_[*v]++ == 1 && problem_.kept[*v] == 0) add_last_reader(*v, +1);
    left_xor_[*v] ^= op;
  }
  if (has_shared_births_) add_births(op, +1);
  level_ -= net_[op];
  const std::uint64_t bits = mix_bits(static_cast<std::uint64_t>(op) + 1);
  key_.first ^= bits;
  key_.second ^= mix_bits(bits);
  const std::int32_t place = trail_place_.back();
  trail_.pop_back();
  executed_at_[op] = -1;
  trail_place_.pop_back();
  if (static_cast<std::size_t>(place) == ready_.size()) {
    ready_.push_back(op);
  } else {
    const std::int32_t moved = ready_[place];
    place_[moved] = static_cast<std::int32_t>(ready_.size());
    ready_.push_back(moved);
    ready_[place] = op;
  }
  place_[op] = place;
}

}  // namespace plimsoll::order
