// SPDX-License-Identifier: Apache-2.0
// Canonical branch and bound: is there a layout of one instance under a given height?
//
// Nouns: SectionSearch, SearchOutcome, SearchVariant.
//
// Stacks grow from address 0 in every section at once. floor(s) is the height below which section s
// is settled. A valley is a run of sections with one floor, lower than both neighbours':
//
//        ####|        |####       In a valley every item that can stand on the floor does so
//        without
//        ####|   s    |####       leaving room below it. So for one section s: some item through s
//        ####|________|####       stands on the floor, or s wastes up to the next place where one
//        ##################       can. Nothing else is possible, and nothing is counted twice.
//
// The waste budget of a section is target - floor - what is left to place in it; it never goes
// below zero, and where it is zero the second choice does not exist.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "plimsoll/plan/layout.h"

#include "plan/layout/instance.h"

namespace plimsoll::plan::layout_detail {

enum class SearchOutcome : std::uint8_t {
  kFound,
  kExhausted,  // no layout of that height exists (only claimed where the search is complete)
  kLimit,      // node limit, stop check, or an incomplete search that ran dry
};

inline constexpr std::int64_t kInfinity = std::numeric_limits<std::int64_t>::max() / 4;

// What a state's key is put together from; apart, so that a level cannot cancel an item.
enum class KeyKind : std::uint64_t { kItem = 1, kLevel = 2, kRange = 3, kTarget = 4 };
std::uint64_t mix_key(KeyKind kind, std::uint64_t x);

// One member of the portfolio: in which order the choices are tried.
struct SearchVariant {
  std::vector<std::int32_t> rank;   // lower is tried first; a permutation
  std::int32_t section_choice = 0;  // 0 fewest choices, 1 lowest valley, 2 least waste budget
  bool waste_first = false;
};

// Single owner; all memory is taken in the constructor. run() may be called again and again; what
// failed for one target is remembered only for that target.
class SectionSearch {
 public:
  SectionSearch(const Instance& instance, const LayoutSearchRules& rules);

  // Searches for a layout of height <= target. `limit` counts nodes of this call.
  SearchOutcome run(std::int64_t target, const SearchVariant& variant, std::int64_t limit,
                    const StopCheck& stop);

  const Offsets& offsets() const { return offset_; }  // after kFound
  std::int64_t nodes() const { return nodes_; }       // of the last run
  bool was_stopped() const { return was_stopped_; }
  // After kExhausted: the smallest height that was refused anywhere; every lower target fails too.
  std::int64_t next_target() const { return next_target_; }

  // The pairs of items that meet in time; decides whether a search is worth its memory.
  static std::int64_t count_pairs(const Instance& instance);

 private:
  struct Edge {
    std::int32_t other;
    std::int64_t lift;  // other stands at least this much above my offset if it comes after me
  };
  struct Trail {
    static constexpr std::int32_t kPlaced = -1;  // index is an item
    static constexpr std::int32_t kLifted = -2;  // index is an item, old_value its lowest offset
    std::int32_t index;
    std::int32_t kind;  // 0 and up: index is a section, old_value its level, kind what stood there
    std::int64_t old_value;
  };
  struct Choice {
    std::int32_t section = -1;
    std::int64_t score = 0;
    std::int64_t second_score = 0;
  };

  void build_edges();
  std::int64_t low_in(std::size_t item, std::int32_t section) const;
  void reset(std::int64_t target);
  SearchOutcome run_from_empty(std::int64_t target);
  SearchOutcome solve(std::int32_t first, std::int32_t last);
  SearchOutcome solve_parts(std::int32_t first, std::int32_t last);
  SearchOutcome branch(std::int32_t first, std::int32_t last, std::int32_t section);
  SearchOutcome descend(std::int32_t first, std::int32_t last, std::size_t mark);
  bool infer(std::int32_t first, std::int32_t last, std::uint64_t& key);
  std::int32_t choose(std::int32_t first, std::int32_t last) const;
  void weigh_valley(std::int32_t first, std::int32_t last, Choice& best) const;
  std::int64_t waste_level(std::int32_t section);
  bool stands_in(std::int32_t item, std::int32_t section) const;
  std::int32_t only_item_of(std::int32_t section) const;
  bool is_alone(std::int32_t item) const;
  bool place(std::int32_t item);
  bool raise(std::int32_t section, std::int64_t level);
  bool lift(std::int32_t item, std::int64_t level);
  void undo(std::size_t mark);
  void unplace(std::size_t item);
  void leave_level(std::size_t item, std::int64_t old_lowest);
  void return_to_level(std::size_t item, std::int64_t old_lowest);
  bool recompute(std::int32_t section);
  std::uint64_t mix_level(std::int32_t section) const;
  bool refuse(std::int64_t height);
  bool remembers(std::uint64_t key) const;
  void remember(std::uint64_t key);

  const Instance& instance_;
  LayoutSearchRules rules_;
  bool complete_ = true;

  // Fixed after construction. Lists are flat: begin indices and one array.
  std::vector<std::int32_t> section_begin_;
  std::vector<std::int32_t> section_items_;
  std::vector<std::int32_t> edge_begin_;
  std::vector<Edge> edges_;
  std::vector<std::uint64_t> item_key_;
  std::vector<std::int32_t> first_section_;
  std::vector<std::int32_t> twin_;  // the previous item with the same pieces, or -1

  // Undone on backtrack: place, lift and undo keep them.
  std::vector<std::int64_t> lowest_;  // an item's lowest possible offset
  std::vector<char> placed_;
  std::vector<std::int64_t> left_;      // heights still to place in a section
  std::vector<std::int32_t> count_;     // items still to place in a section
  std::vector<std::int32_t> crossing_;  // unplaced items in both s and s + 1
  Offsets offset_;
  std::vector<Trail> trail_;

  std::vector<std::int64_t> level_;       // floor(s)
  std::vector<std::int32_t> standing_;    // items that can stand on it
  std::vector<std::uint64_t> level_key_;  // mix_level(s)
  std::vector<std::uint64_t> item_hash_;  // of the unplaced items that begin in a section

  // To do for the next infer.
  std::vector<std::int32_t> dirty_;  // sections where nothing stands any more
  std::vector<char> is_dirty_;
  std::vector<std::int32_t> lone_;  // sections with one item left

  // One run.
  std::vector<std::uint64_t> seen_;
  std::vector<std::int32_t> candidates_;  // a stack of the open nodes' choices
  const SearchVariant* variant_ = nullptr;
  const StopCheck* stop_ = nullptr;
  std::int64_t target_ = 0;
  std::map<std::int64_t, std::int64_t> refused_;  // next_target_ of each target tried
  std::int64_t next_target_ = 0;
  std::int64_t nodes_ = 0;
  std::int64_t limit_ = 0;
  bool was_stopped_ = false;
};

}  // namespace plimsoll::plan::layout_detail
