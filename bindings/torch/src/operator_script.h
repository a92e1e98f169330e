// SPDX-License-Identifier: Apache-2.0
// What one operator allocates while it runs, and addresses under which all of it fits.
//
// Nouns: AllocationTrace, OperatorScript, ScriptBook.
//
// A kernel that allocates results and scratch one by one into the room that is left can cut it into
// pieces that are each too small for the next. A trace of a run that failed so tells which
// allocations end early; laid out with that knowledge they leave the room in one piece.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <c10/util/flat_hash_map.h>

namespace plimsoll::detail {

// Bytes are rounded to the arena's alignment; offsets count from the script's own start.
struct OperatorScript {
  struct Allocation {
    std::int64_t bytes = 0;
    std::int64_t offset = 0;
  };
  std::vector<Allocation> allocations;  // in the order in which they are asked for
  std::int64_t bytes = 0;               // the one range that holds them all
};

class AllocationTrace {
 public:
  void clear();
  std::size_t size() const { return lives_.size(); }
  std::size_t begin(std::int64_t bytes);  // returns the allocation's place in the order
  void end(std::size_t allocation);
  // Pure; the same trace gives the same script. What is live now is taken to stay. Cost: a small
  // exact search, bounded to a few milliseconds.
  OperatorScript lay_out() const;

 private:
  struct Life {
    std::int64_t bytes;
    std::int64_t begin;
    std::int64_t end;
  };
  static constexpr std::int64_t kLive = -1;

  std::vector<Life> lives_;
  std::int64_t clock_ = 0;
};

// Scripts by operator and operands' sizes. Small: only operators that once failed have one.
class ScriptBook {
 public:
  bool empty() const { return scripts_.empty(); }
  std::shared_ptr<const OperatorScript> find(std::uint64_t key) const;
  void keep(std::uint64_t key, std::shared_ptr<const OperatorScript> script);

 private:
  static constexpr std::size_t kMostScripts = 4096;
  ska::flat_hash_map<std::uint64_t, std::shared_ptr<const OperatorScript>> scripts_;
};

}  // namespace plimsoll::detail
