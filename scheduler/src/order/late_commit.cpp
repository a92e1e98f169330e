// SPDX-License-Identifier: Apache-2.0
#include "late_commit.h"

namespace plimsoll::order {

LateCommit::LateCommit(const Problem& problem)
    : problem_(problem), seen_(problem.storage_count(), 0) {}

bool LateCommit::is_new(std::int32_t v) {
  if (seen_[v] == stamp_) return false;
  seen_[v] = stamp_;
  return true;
}

bool LateCommit::is_minimum(const State& state, std::size_t from) {
  ++stamp_;
  flow_.clear();
  present_ = 0;
  const auto& executed = state.executed();
  for (std::size_t i = from; i < executed.size(); ++i) flow_.add_node();
  for (std::size_t i = from; i < executed.size(); ++i) {
    const std::int32_t op = executed[i];
    for (const std::int32_t p : problem_.before[op]) {
      const std::int32_t to = node(state, from, p);
      if (to >= 0) flow_.add_arc(node(state, from, op), to, MaxFlow::kUnlimited);
    }
    for (const std::int32_t v : problem_.results[op])
      if (is_new(v)) add_storage(state, from, v);
    for (const std::int32_t v : problem_.operands[op])
      if (state.readers_left(v) == 0 && is_new(v)) add_storage(state, from, v);
  }
  flow_.run(-1, {});
  // All of X on the source side costs what X leaves alive; that it is a minimum is a full flow.
  return flow_.value() == present_;
}

// A storage costs its bytes from its birth until its last reader, both as seen from inside X.
void LateCommit::add_storage(const State& state, std::size_t from, std::int32_t v) {
  const std::int64_t bytes = problem_.bytes[v];
  if (bytes == 0) return;
  const bool dead = problem_.kept[v] == 0 && state.readers_left(v) == 0;
  bool born_before = problem_.from_start(v);
  std::int32_t births = 0, birth = -1;
  for (const std::int32_t b : problem_.births[v]) {
    if (state.executed_at(b) < 0) continue;
    const std::int32_t n = node(state, from, b);
    if (n < 0) {
      born_before = true;
    } else {
      ++births;
      birth = n;
    }
  }
  if (dead && problem_.readers[v].empty()) return;
  if (born_before && !dead) return;  // there all along
  std::int32_t tail = born_before ? flow_.source() : birth;
  if (!born_before && births > 1) {
    tail = flow_.add_node();
    for (const std::int32_t b : problem_.births[v])
      if (state.executed_at(b) >= 0) flow_.add_arc(node(state, from, b), tail, MaxFlow::kUnlimited);
  }
  if (!dead) {
    present_ += bytes;
    flow_.add_arc(tail, flow_.sink(), bytes);
    return;
  }
  const std::int32_t head = flow_.add_node();
  flow_.add_arc(tail, head, bytes);
  for (const std::int32_t r : problem_.readers[v]) {
    const std::int32_t n = node(state, from, r);
    if (n >= 0) flow_.add_arc(head, n, MaxFlow::kUnlimited);
  }
}

}  // namespace plimsoll::order
