// SPDX-License-Identifier: Apache-2.0
#include "rung.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;

namespace {

// Gaps up to which the linear program is among the tries.
constexpr std::size_t kMaxLinear = 160;
constexpr int kDesperate = 8;
constexpr int kFewTries = 8;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool is_checkpoint_kind(std::string_view kind) {
  for (const std::string_view part :
       {"conv", "mm", "linear", "FC", "CONV", "JOIN", "FORK", "add", "cat", "attention"})
    if (kind.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace

Rung::Rung(const Problem& problem, const std::vector<double>& drop_ns, Policy policy,
           std::int64_t budget_bytes, int evaluations)
    : it_(problem),
      drop_ns_(drop_ns),
      policy_(policy),
      budget_bytes_(budget_bytes),
      left_(evaluations) {}

double Rung::try_decisions(const Decisions& decisions, const ReplayOptions& options) {
  const std::size_t key = std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(decisions.data()), decisions.size()});
  const bool is_new = tried_.insert(2 * key + (options.keep_rebuilt ? 1 : 0)).second;
  if (!is_new) return kInfinite;
  --left_;
  ReplayOptions bounded = options;
  bounded.give_up_ns = std::min(limit_ns_, best_ ? best_->replay.estimated_ns : kInfinite);
  ReplayResult result = replay(it_, decisions, bounded);
  if (!result.feasible) return kInfinite;
  if (best_ && best_->replay.estimated_ns <= result.estimated_ns) return kInfinite;
  best_ = RungResult{decisions, std::move(result.realized), options, {}};
  best_->replay = std::move(result);
  return best_->replay.estimated_ns;
}

namespace {

ReplayOptions options_for(Policy policy, std::int64_t budget_bytes, std::size_t ops) {
  ReplayOptions options;
  options.budget_bytes = budget_bytes;
  options.may_recompute = may_recompute(policy);
  options.may_offload = may_offload(policy);
  options.recompute_limit = 4 * static_cast<std::int64_t>(ops) + 1000;
  if (policy == Policy::kBaselineDtr) options.rule = VictimRule::kDtr;
  return options;
}

}  // namespace

double Rung::try_mix(const Mix& mix) {
  if (is_spent()) return kInfinite;
  const bool copying = may_offload(policy_) && it_.device->can_copy();
  const auto part = [&](double of) {
    return static_cast<std::int64_t>(of * static_cast<double>(budget_bytes_ - it_.pinned_bytes));
  };
  ChooseOptions choose;
  choose.target_bytes = it_.pinned_bytes + part(mix.target);
  choose.link_share = copying ? mix.link_share : 0;
  choose.link_lag = mix.link_lag;
  choose.may_recompute = may_recompute(policy_);
  choose.offload_order = mix.order;
  choose.segment_bytes = part(mix.segment);
  ReplayOptions options = options_for(policy_, budget_bytes_, it_.order.size());
  options.keep_rebuilt = mix.keep_rebuilt;
  return try_decisions(choose_greedily(it_, drop_ns_, choose), options);
}

// From the best of some known to do well, steps to whichever neighbour is faster, as long as tries
// are left.
void Rung::climb_mixes(MixPoint& point) {
  try_mix(point.mix());
  for (const MixPoint& start : MixPoint::starts())
    if (left_ > 1 && try_mix(start.mix()) < kInfinite) point = start;
  for (int failed = 0; failed < MixPoint::kAxes && !is_spent(); ++failed) {
    for (const int step : {1, -1}) {
      const auto next = point.neighbour(point.axis, step);
      if (!next || try_mix(next->mix()) == kInfinite) continue;
      point = *next;
      failed = -1;
      break;
    }
    point.axis = (point.axis + 1) % MixPoint::kAxes;
  }
}

void Rung::try_first_mixes() {
  const double many = 1e6;
  const int all = kLinkWindows;
  if (policy_ == Policy::kOffloadOnly) {
    for (const double target : {1.0, 0.9, 0.75, 0.5}) try_mix({many, all, target});
    return;
  }
  // With few tries, what does best on large graphs.
  if (left_ <= kFewTries) return;
  const std::pair<double, double> mixes[] = {
      {0.6, 0.9},  {0, 0.9},   {0.9, 0.9}, {0.3, 0.9},  {0.6, 0.7}, {many, 0.8}, {0, 0.7},
      {0.9, 0.98}, {0, 0.98},  {0.6, 0.5}, {1.3, 0.9},  {0.3, 0.7}, {0.9, 0.6},  {0, 0.5},
      {many, 0.4}, {0.1, 0.9}, {0.3, 0.5}, {0.6, 0.98}, {0, 0.3},   {0.9, 0.3}};
  for (const auto& [share, target] : mixes) try_mix({share, all, target});
}

// The longest idle first (Capuchin), or a prefix of the chain (POFO).
void Rung::try_published_mixes(OffloadOrder order, double most) {
  for (const double target : {1.0, 0.78})
    for (const double share : {0.6, 0.9, 0.3, 0.0, 1e6, 1.3, 0.1})
      try_mix({share, kLinkWindows, most * target, 0, order});
}

void Rung::try_chen() {
  std::vector<StorageId> made;  // by the forward pass, in order
  std::vector<std::int32_t> rank(it_.bytes.size(), -1);
  for (const OpId o : it_.order)
    for (const StorageId s : it_.graph->touched(o))
      if (it_.first_gap[s.index() + 1] > it_.first_gap[s.index()] && rank[s.index()] < 0 &&
          it_.graph->phase(o) == graph::Phase::kForward) {
        rank[s.index()] = static_cast<std::int32_t>(made.size());
        made.push_back(s);
      }
  const auto root = static_cast<std::int32_t>(std::lround(std::sqrt(double(made.size()))));
  for (const std::int32_t k : {root, root / 2, 2 * root, 2, 4, 8, 16, 32, 64, 3}) {
    if (k < 2 || is_spent()) continue;
    Decisions decisions(it_.gaps.size(), Choice::kKeep);
    for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
      const std::int32_t r = rank[it_.gaps[g].storage.index()];
      if (r >= 0 && r % k != 0 && std::isfinite(drop_ns_[g])) decisions[g] = Choice::kDrop;
    }
    try_decisions(decisions, options_for(policy_, budget_bytes_, it_.order.size()));
  }
}

void Rung::try_superneurons() {
  Decisions decisions(it_.gaps.size(), Choice::kKeep);
  for (std::size_t g = 0; g < it_.gaps.size(); ++g) {
    const auto writers = it_.writers[it_.gaps[g].storage.index()];
    if (writers.empty() || it_.graph->phase(writers[0]) != graph::Phase::kForward) continue;
    const bool checkpoint = is_checkpoint_kind(it_.graph->kind(writers[0]));
    if (checkpoint || !std::isfinite(drop_ns_[g])) {
      decisions[g] = it_.device->can_copy() ? Choice::kOffload : Choice::kKeep;
    } else {
      decisions[g] = Choice::kDrop;
    }
  }
  ReplayOptions options = options_for(policy_, budget_bytes_, it_.order.size());
  try_decisions(decisions, options);
  options.keep_rebuilt = false;  // memory-centric
  try_decisions(decisions, options);
}

std::vector<std::size_t> Rung::moved_by_cost() const {
  std::vector<std::size_t> moved;
  for (std::size_t g = 0; g < it_.gaps.size(); ++g)
    if (best_->decisions[g] != Choice::kKeep) moved.push_back(g);
  const auto cost = [&](std::size_t g) {
    return best_->decisions[g] == Choice::kDrop
               ? drop_ns_[g]
               : it_.device->copy_ns(it_.bytes[it_.gaps[g].storage.index()], Stream::kCopyIn,
                                     Tier::kHost);
  };
  std::stable_sort(moved.begin(), moved.end(),
                   [&](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
  return moved;
}

void Rung::try_flipped(const std::vector<std::size_t>& gaps, Choice choice) {
  if (is_spent() || !best_) return;
  if (choice == Choice::kOffload && (!may_offload(policy_) || !it_.device->can_copy())) return;
  if (choice == Choice::kDrop && !may_recompute(policy_)) return;
  Decisions decisions = best_->decisions;
  bool changed = false;
  for (const std::size_t g : gaps) {
    if (decisions[g] == choice || (choice == Choice::kDrop && !std::isfinite(drop_ns_[g])))
      continue;
    decisions[g] = choice;
    changed = true;
  }
  const ReplayOptions options = best_->options;
  if (changed) try_decisions(decisions, options);
}

// The copies that ops wait for longest: their storages stay or run again instead.
void Rung::flip_stalled() {
  if (!may_offload(policy_) || !it_.device->can_copy()) return;
  std::vector<std::uint8_t> was_tried(it_.bytes.size());
  std::vector<double> stalled_ns;
  for (int limit = left_ / 2; left_ > limit;) {
    estimate_ns(it_, best_->replay.draft, budget_bytes_, &stalled_ns);
    std::size_t worst = stalled_ns.size();
    for (std::size_t s = 0; s < stalled_ns.size(); ++s)
      if (was_tried[s] == 0 && stalled_ns[s] > 0 &&
          (worst == stalled_ns.size() || stalled_ns[s] > stalled_ns[worst]))
        worst = s;
    if (worst == stalled_ns.size()) return;
    was_tried[worst] = 1;
    std::vector<std::size_t> gaps;
    for (std::int32_t g = it_.first_gap[worst]; g < it_.first_gap[worst + 1]; ++g)
      if (best_->decisions[std::size_t(g)] == Choice::kOffload) gaps.push_back(std::size_t(g));
    try_flipped(gaps, Choice::kDrop);
    try_flipped(gaps, Choice::kKeep);
  }
}

// All moved gaps whose storages the same kind of op wrote, at once.
void Rung::flip_groups() {
  std::map<std::pair<std::string_view, Choice>, std::vector<std::size_t>> groups;
  for (const std::size_t g : moved_by_cost()) {
    const auto writers = it_.writers[it_.gaps[g].storage.index()];
    const std::string_view kind = writers.empty() ? "" : it_.graph->kind(writers[0]);
    groups[{kind, best_->decisions[g]}].push_back(g);
  }
  for (const auto& [key, gaps] : groups) {
    try_flipped(gaps, key.second == Choice::kDrop ? Choice::kOffload : Choice::kDrop);
    try_flipped(gaps, Choice::kKeep);
  }
}

// The dearest moves first, in chunks that shrink.
void Rung::flip_chunks() {
  for (std::size_t parts = 4; !is_spent() && parts <= 1024; parts *= 2) {
    const std::vector<std::size_t> moved = moved_by_cost();
    if (moved.empty()) return;
    const std::size_t chunk = std::max<std::size_t>(1, moved.size() / parts);
    const std::size_t tries = std::min<std::size_t>(parts, moved.size() / chunk);
    for (std::size_t i = 0; i < tries && !is_spent(); ++i) {
      const std::vector<std::size_t> gaps(
          moved.begin() + static_cast<std::ptrdiff_t>(i * chunk),
          moved.begin() + static_cast<std::ptrdiff_t>((i + 1) * chunk));
      try_flipped(gaps, Choice::kKeep);
      try_flipped(gaps,
                  best_->decisions[gaps[0]] == Choice::kDrop ? Choice::kOffload : Choice::kDrop);
    }
    if (chunk == 1) return;
  }
}

// What is found here leaves tries for the flips, but where there are few of them.
void Rung::search_mixes(bool is_broad, MixPoint& point) {
  const int all = left_;
  if (all > kFewTries) left_ = 2 * all / 3;
  const int kept = all - left_;
  climb_mixes(point);
  if (is_broad || !best_) try_first_mixes();
  left_ += kept;
}

std::optional<RungResult> Rung::search_published(double limit_ns) {
  limit_ns_ = limit_ns;
  const ReplayOptions plain = options_for(policy_, budget_bytes_, it_.order.size());
  switch (policy_) {
    case Policy::kBaselineChen:
      try_chen();
      break;
    case Policy::kSuperNeurons:
      try_superneurons();
      break;
    case Policy::kBaselineDtr:
      try_decisions(Decisions(it_.gaps.size(), Choice::kKeep), plain);
      break;
    case Policy::kBaselineCapuchin:
      try_published_mixes(OffloadOrder::kLongest, 1.0);
      break;
    case Policy::kBaselinePofo:
      try_published_mixes(OffloadOrder::kEarliest, 0.9);
      break;
    case Policy::kBaselineCheckmate:
      for (const double margin : {1.0, 0.9, 0.8}) {
        const auto target =
            it_.pinned_bytes + static_cast<std::int64_t>(
                                   margin * static_cast<double>(budget_bytes_ - it_.pinned_bytes));
        try_decisions(choose_by_linear_program(it_, drop_ns_, target, true, false).decisions,
                      plain);
      }
      break;
    default:
      break;
  }
  return std::move(best_);
}

std::optional<RungResult> Rung::search(const Decisions& warm, bool is_broad, MixPoint& mix) {
  const ReplayOptions plain = options_for(policy_, budget_bytes_, it_.order.size());
  if (!warm.empty()) ++left_, try_decisions(warm, plain);
  search_mixes(is_broad, mix);
  if (!is_spent()) try_decisions(Decisions(it_.gaps.size(), Choice::kKeep), plain);
  if (it_.gaps.size() <= kMaxLinear && !is_spent()) {
    const LinearChoice linear = choose_by_linear_program(
        it_, drop_ns_, budget_bytes_, may_recompute(policy_), may_offload(policy_));
    if (linear.solved) try_decisions(linear.decisions, plain);
  }
  if (!best_) {
    left_ = kDesperate;
    return find_any();
  }
  if (may_recompute(policy_) && !is_spent()) {
    ReplayOptions other = best_->options;
    other.keep_rebuilt = !other.keep_rebuilt;
    const Decisions decisions = best_->decisions;
    try_decisions(decisions, other);
  }
  flip_stalled();
  flip_groups();
  flip_chunks();
  return std::move(best_);
}

std::vector<RungResult> Rung::first_mixes() {
  std::vector<Mix> mixes;
  for (const MixPoint& start : MixPoint::starts()) mixes.push_back(start.mix());
  for (const double share : {0.0, 0.3, 0.6, 0.95, 1.3})
    for (const double target : {0.9, 0.7, 0.5}) mixes.push_back({share, kLinkWindows, target});
  std::vector<RungResult> results;
  for (const Mix& mix : mixes) {
    best_.reset();
    left_ = 1;
    if (try_mix(mix) < kInfinite) results.push_back(std::move(*best_));
  }
  best_.reset();
  return results;
}

std::optional<RungResult> Rung::find_any() {
  const auto found = [&] { return best_.has_value(); };
  for (const double share : {1e6, 0.0}) {
    for (const double target : {0.8, 0.5, 0.1}) {
      left_ = 1;
      try_mix({share, kLinkWindows, target});
      if (found()) return std::move(best_);
    }
  }
  ReplayOptions options = options_for(policy_, budget_bytes_, it_.order.size());
  try_decisions(Decisions(it_.gaps.size(), Choice::kKeep), options);
  if (found()) return std::move(best_);
  options.keep_rebuilt = false;
  try_decisions(Decisions(it_.gaps.size(), Choice::kKeep), options);
  if (!found()) try_superneurons();
  if (!found() && policy_ == Policy::kAuto)
    return Rung(it_, drop_ns_, Policy::kOffloadOnly, budget_bytes_, kDesperate).find_any();
  return std::move(best_);
}

}  // namespace plimsoll::plan
