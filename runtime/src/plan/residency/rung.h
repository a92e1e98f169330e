// SPDX-License-Identifier: Apache-2.0
// The search at one budget: many decisions, the fastest replay wins.
//
// Nouns: Rung, RungResult.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_set>
#include <vector>

#include "plimsoll/plan/residency.h"

#include "choose.h"
#include "mix.h"
#include "replay.h"

namespace plimsoll::plan {

struct RungResult {
  Decisions given;      // what the replay was made from
  Decisions decisions;  // what became of every gap in it
  ReplayOptions options;
  ReplayResult replay;
};

// Which moves a policy has.
bool may_recompute(Policy policy);
bool may_offload(Policy policy);

class Rung {
 public:
  Rung(const Problem& problem, const std::vector<double>& drop_ns, Policy policy,
       std::int64_t budget_bytes, int evaluations);

  // The fastest found, `warm` among what is tried. `is_broad`: first decisions of
  // every kind are tried, not only what lies around `warm` and `mix`, which becomes the best mix
  // found. Nothing where no try fits.
  std::optional<RungResult> search(const Decisions& warm, bool is_broad, MixPoint& mix);
  // What a published policy finds; tries end where their ops alone take `limit_ns`.
  std::optional<RungResult> search_published(double limit_ns);
  // What first decisions of many kinds come to, those that fit.
  std::vector<RungResult> first_mixes();
  // Stops at the first that fits; tries what holds the least.
  std::optional<RungResult> find_any();

 private:
  // Returns the estimated time; infinite where it does not fit or is no faster than the best.
  double try_decisions(const Decisions& decisions, const ReplayOptions& options);
  double try_mix(const Mix& mix);
  void try_first_mixes();
  void climb_mixes(MixPoint& point);
  void search_mixes(bool is_broad, MixPoint& point);
  void try_published_mixes(OffloadOrder order, double most);
  void try_chen();
  void try_superneurons();
  void flip_stalled();
  void flip_groups();
  void flip_chunks();
  void try_flipped(const std::vector<std::size_t>& gaps, Choice choice);
  std::vector<std::size_t> moved_by_cost() const;
  bool is_spent() const { return left_ <= 0; }

  const Problem& it_;
  const std::vector<double>& drop_ns_;
  Policy policy_;
  std::int64_t budget_bytes_;
  int left_;
  double limit_ns_ = std::numeric_limits<double>::infinity();
  std::unordered_set<std::size_t> tried_;  // keys of decisions; never iterated
  std::optional<RungResult> best_;
};

}  // namespace plimsoll::plan
