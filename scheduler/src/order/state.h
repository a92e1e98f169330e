// SPDX-License-Identifier: Apache-2.0
// The search state: which operators have run, and everything that follows from it, with undo.
//
// Noun: State. run() and undo() are the one named pair that changes it and takes it back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plimsoll/order/problem.h"

namespace plimsoll::order {

// A set of executed operators, as 128 bits that stand for it. Two sets that meet here by chance
// (probability about states^2 / 2^129) would be taken for one.
struct StateKey {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  friend bool operator==(const StateKey&, const StateKey&) = default;
};

// Mixes 64 bits (the finaliser of splitmix64).
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The state after a prefix of an order. Holds a reference to the problem, which must outlive it.
// Single owner. Invariants, for every operator o that has not run:
//   net(o)  = rest level after o - rest level now
//   rise(o) = run level of o - rest level now
class State {
 public:
  explicit State(const Problem& problem);

  // Runs a ready operator. O(its degree).
  void run(std::int32_t op);
  // Takes the last run() back, exactly, the order of ready() included.
  void undo();
  // Undoes until `count` operators have run.
  void undo_to(std::size_t count) {
    while (trail_.size() > count) undo();
  }

  std::int64_t level() const { return level_; }
  std::int64_t net(std::int32_t op) const { return net_[op]; }
  std::int64_t rise(std::int32_t op) const { return rise_[op]; }
  // Operators whose predecessors have all run. What run() makes ready stands at the end.
  std::span<const std::int32_t> ready() const { return ready_; }
  bool is_ready(std::int32_t op) const { return place_[op] >= 0; }
  std::size_t executed_count() const { return trail_.size(); }
  bool complete() const { return trail_.size() == net_.size(); }
  const std::vector<std::int32_t>& executed() const { return trail_; }
  // How many operators had run before `op` did; -1: it has not.
  std::int32_t executed_at(std::int32_t op) const { return executed_at_[op]; }
  std::int32_t readers_left(std::int32_t v) const { return left_[v]; }
  StateKey key() const { return key_; }
  // How many operators run() and undo() have touched, neighbours included: a clock that repeats.
  std::int64_t work() const { return work_; }
  // Operators whose net fell or that became ready since the last clear_touched().
  std::vector<std::int32_t>& touched() { return touched_; }

 private:
  void add_births(std::int32_t op, std::int64_t sign);
  void add_last_reader(std::int32_t v, std::int64_t sign);

  const Problem& problem_;
  bool has_shared_births_ = false;
  std::vector<std::int32_t> waiting_;   // predecessors still to run, per operator
  std::vector<std::int32_t> left_;      // readers still to run, per storage
  std::vector<std::int32_t> left_xor_;  // their indices combined by xor: the last one, once alone
  std::vector<std::int32_t> born_;      // births that have run, per storage with several
  std::vector<std::int64_t> net_;
  std::vector<std::int64_t> rise_;
  std::vector<std::int32_t> ready_;
  std::vector<std::int32_t> place_;  // in ready_, or -1
  std::vector<std::int32_t> trail_;  // executed, in order
  std::vector<std::int32_t> executed_at_;
  std::vector<std::int32_t> trail_place_;
  std::vector<std::int32_t> touched_;
  std::int64_t level_ = 0;
  StateKey key_;
  std::int64_t work_ = 0;
};

}  // namespace plimsoll::order
