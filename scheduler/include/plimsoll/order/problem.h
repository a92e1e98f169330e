// SPDX-License-Identifier: Apache-2.0
// The flat form of a graph that every order solver works on, and the memory function on it.
//
// Nouns: Problem, ProblemInput, Profile. Operators and values are dense indices; -1 means none.
//
//   level     ____
//            |    |__ run level of b: level before + results + extra - what b overwrites
//      ____  |       |
//     |    |_|       |____ rest level: what is born and still has a reader to come
//     a      b
//
// Model (a serial schedule): value v is born when its producer starts (or lives from the start),
// and dies when its last reader ends (at its producer's end without readers), or when that reader
// starts if the reader overwrites v. With A and B down-closed sets of events, level(A) + level(B)
// >= level(A|B) + level(A&B): the level is submodular, which is what every rule in this folder
// rests on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace plimsoll::order {

// Rows of 32-bit indices, stored one after the other.
class Rows {
 public:
  Rows() : starts_{0} {}
  // Makes `rows` rows of the (row, item) pairs, in the order given. O(rows + pairs).
  // Errors: InvalidArgument for 2^31 pairs or more.
  Rows(std::size_t rows, std::span<const std::pair<std::int32_t, std::int32_t>> pairs);

  std::size_t size() const { return starts_.size() - 1; }
  std::size_t item_count() const { return items_.size(); }
  std::span<const std::int32_t> operator[](std::int32_t row) const {
    const auto r = static_cast<std::size_t>(row);
    return {items_.data() + starts_[r], static_cast<std::size_t>(starts_[r + 1] - starts_[r])};
  }
  // Appends one row.
  void add_row(std::span<const std::int32_t> items);
  // The rows turned round: row i lists the rows that hold item i, ascending.
  Rows transposed(std::size_t items) const;

 private:
  std::vector<std::int32_t> starts_;
  std::vector<std::int32_t> items_;
};

// One weighted thing that is born and dies: a storage.
struct Storage {
  std::int64_t bytes = 0;  // >= 0
  bool kept = false;       // live to the end
};

// What build_problem takes. Pairs may repeat.
struct ProblemInput {
  std::int32_t ops = 0;
  std::vector<Storage> storages;
  // (storage, operator): the first of its births to run allocates a storage; without any it is
  // live from the start. Where there is one, it is implied to come before each read; where there
  // are several, `precedence` says what has to wait for which.
  std::vector<std::pair<std::int32_t, std::int32_t>> births;
  std::vector<std::pair<std::int32_t, std::int32_t>> reads;       // (storage, operator)
  std::vector<std::pair<std::int32_t, std::int32_t>> precedence;  // (earlier, later) operators
  // Bytes above the results that the operator needs while it runs; empty means all zero. Negative
  // only for fused operators.
  std::vector<std::int64_t> extra;
  // (operator, storage): a storage whose bytes the operator no longer needs while it runs, if it
  // is the last to read it: one that it overwrites.
  std::vector<std::pair<std::int32_t, std::int32_t>> overwrites;
  std::int64_t base_bytes = 0;  // added to every level: what lives throughout
  // The order that counts as the program's; empty: the smallest topological order.
  std::vector<std::int32_t> program;
};

struct Problem {
  std::vector<std::int64_t> bytes;  // per storage
  std::vector<std::uint8_t> kept;
  Rows births;  // operators, ascending, each once; none: live from the start
  Rows readers;

  Rows results;  // storages that an operator may give birth to
  Rows operands;
  std::vector<std::int64_t> extra;
  Rows overwrites;  // operands, ascending
  Rows before;      // direct predecessors, ascending, each once
  Rows after;
  std::int64_t base_bytes = 0;
  std::vector<std::int32_t> program;  // a topological order

  std::int32_t op_count() const { return static_cast<std::int32_t>(extra.size()); }
  std::int32_t storage_count() const { return static_cast<std::int32_t>(bytes.size()); }
  bool is_overwritten(std::int32_t v, std::int32_t op) const {
    for (const std::int32_t w : overwrites[op])
      if (w == v) return true;
    return false;
  }
  bool from_start(std::int32_t v) const { return births[v].empty(); }
  // Whether storage v needs bytes at rest once born.
  bool survives(std::int32_t v) const {
    return kept[static_cast<std::size_t>(v)] != 0 || !readers[v].empty();
  }
};

// Builds the flat form. O(size log degree).
// Errors: InvalidArgument naming the operator or storage for an index out of range, a negative
// size, a program order that breaks precedence, sizes whose sum leaves 62 bits, an operator that
// overwrites what it does not read, and for a cycle (with the operators on it).
Problem build_problem(ProblemInput input);

// The levels along an order. All in bytes.
struct Profile {
  std::vector<std::int64_t> run;   // per position, while the operator runs
  std::vector<std::int64_t> rest;  // rest[i]: before position i; one more than operators
  std::int64_t peak = 0;           // the largest of all
  std::int32_t peak_position = 0;  // the first position whose run level is the peak
};

// Computes the levels of `order`, a permutation of the operators that respects precedence.
// O(size). Errors: InvalidArgument where it is not such a permutation.
Profile profile(const Problem& problem, std::span<const std::int32_t> order);

// Whether `order` is a permutation of the operators that respects precedence. O(size).
bool is_topological(const Problem& problem, std::span<const std::int32_t> order);

// The topological order that takes the smallest index first. O(size log ops).
std::vector<std::int32_t> smallest_order(const Problem& problem);

}  // namespace plimsoll::order
