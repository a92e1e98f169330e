// SPDX-License-Identifier: Apache-2.0
#include "search.h"

#include <algorithm>
#include <memory>

#include "plimsoll/order/fusion.h"

#include "diagnose.h"
#include "heuristics.h"
#include "segment.h"
#include "window.h"

namespace plimsoll::order {
namespace {

// One stretch between two states that every order passes.
struct Stretch {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int64_t peak = 0;
  std::int64_t bound = 0;
  std::unique_ptr<Segment> segment;  // made when the stretch comes first
  bool stuck = false;
};

class Search {
 public:
  Search(const Problem& problem, const Options& options, Stopper& stopper, Result& result)
      : problem_(problem), options_(options), stopper_(stopper), result_(result) {}

  void run() {
    fused_ = fuse(problem_, options_.fusion, [this] { return stopper_(); });
    result_.fused_ops = fused_.problem.op_count();
    if (stopper_()) return;
    make_orders();
    make_stretches();
    while (!stopper_()) {
      Stretch* worst = pick();
      if (worst == nullptr) break;
      work_on(*worst);
    }
    assemble();
    diagnose(problem_, suspects_, stopper_, result_);
  }

 private:
  void make_orders() {
    orders_.emplace_back(fused_.problem, fused_.problem.program);
    orders_.emplace_back(fused_.problem, greedy_order(fused_.problem));
    if (stopper_()) return;
    orders_.emplace_back(fused_.problem, depth_first_order(fused_.problem));
    orders_.emplace_back(fused_.problem, reverse_post_order(fused_.problem));
  }

  void make_stretches() {
    const std::int32_t ops = fused_.problem.op_count();
    std::vector<std::int32_t> marks = {0, ops};
    if (options_.rules.separators) marks = separators(fused_.problem, orders_[0]);
    for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
      Stretch stretch;
      stretch.begin = marks[i];
      stretch.end = marks[i + 1];
      stretch.peak = best_peak(stretch, nullptr);
      if (stretch.end - stretch.begin == 1) stretch.bound = stretch.peak;
      stretches_.push_back(std::move(stretch));
    }
  }

  // The least peak inside the stretch over the orders known, and which order has it.
  std::int64_t best_peak(const Stretch& stretch, const Timeline** best) const {
    std::int64_t least = 0;
    for (const Timeline& timeline : orders_) {
      std::int64_t peak = timeline.levels.rest[stretch.begin];
      for (std::int32_t p = stretch.begin; p < stretch.end; ++p)
        peak = std::max(peak, timeline.levels.run[p]);
      if (&timeline != &orders_[0] && peak >= least) continue;
      least = peak;
      if (best != nullptr) *best = &timeline;
    }
    return least;
  }

  std::int64_t bound() const {
    std::int64_t bound = 0;
    for (const Stretch& stretch : stretches_) bound = std::max(bound, stretch.bound);
    return bound;
  }

  // The stretch with the highest peak, unless a bound says that it cannot be lowered.
  Stretch* pick() {
    Stretch* worst = nullptr;
    for (Stretch& stretch : stretches_)
      if (worst == nullptr || stretch.peak > worst->peak ||
          (stretch.peak == worst->peak && worst->stuck && !stretch.stuck))
        worst = &stretch;
    if (worst == nullptr || worst->stuck || worst->peak <= bound()) return nullptr;
    return worst;
  }

  void work_on(Stretch& stretch) {
    if (stretch.segment == nullptr) open(stretch);
    if (!stretch.segment->closed() && !stretch.segment->advance(bound())) stretch.stuck = true;
    stretch.peak = stretch.segment->peak();
    stretch.bound = stretch.segment->bound();
    std::int64_t work = 0;
    for (const Stretch& s : stretches_)
      if (s.segment != nullptr) work += s.segment->work();
    if (options_.work_limit >= 0 && work > options_.work_limit) {
      result_.stopped_early = true;
      stretch.stuck = true;
    }
  }

  void open(Stretch& stretch) {
    const Timeline& base = orders_[0];
    std::vector<std::vector<std::int32_t>> local;
    for (const Timeline& timeline : orders_) {
      std::vector<std::int32_t> order;
      for (std::int32_t p = stretch.begin; p < stretch.end; ++p)
        order.push_back(base.position[timeline.order[p]] - stretch.begin);
      local.push_back(std::move(order));
    }
    stretch.segment =
        std::make_unique<Segment>(window_problem(fused_.problem, base, stretch.begin, stretch.end),
                                  std::move(local), options_, stopper_);
  }

  // Puts the best order of each stretch together and takes it if it is better.
  void assemble() {
    std::vector<std::int32_t> order;
    const Stretch* highest = nullptr;
    for (const Stretch& stretch : stretches_) {
      if (highest == nullptr || stretch.bound > highest->bound) highest = &stretch;
      if (stretch.segment != nullptr) {
        for (const std::int32_t o : stretch.segment->order())
          order.push_back(orders_[0].order[stretch.begin + o]);
        result_.states += stretch.segment->states();
        continue;
      }
      const Timeline* best = nullptr;
      best_peak(stretch, &best);
      for (std::int32_t p = stretch.begin; p < stretch.end; ++p) order.push_back(best->order[p]);
    }
    if (highest != nullptr) take_bound(*highest);
    std::vector<std::int32_t> original = unfuse(fused_, order);
    const std::int64_t peak = profile(problem_, original).peak;
    result_.segments = static_cast<std::int32_t>(stretches_.size());
    if (peak < result_.peak_bytes || result_.order.empty()) {
      result_.peak_bytes = peak;
      result_.order = std::move(original);
    }
    // Of the graph as given: fusion and the order of twins part the fused one more often.
    const std::vector<std::int32_t> marks = separators(problem_, Timeline(problem_, result_.order));
    result_.separators.assign(marks.begin(), marks.end());
  }

  void take_bound(const Stretch& stretch) {
    if (stretch.bound <= result_.lower_bound_bytes) return;
    result_.lower_bound_bytes = stretch.bound;
    result_.proof = Proof::kResident;
    std::int32_t op = -1;
    if (stretch.segment != nullptr) {
      result_.proof = stretch.segment->proof();
      op = stretch.segment->bound_op();
    } else if (stretch.end - stretch.begin == 1) {
      op = 0;
    }
    if (op < 0) return;
    const auto members = fused_.members[orders_[0].order[stretch.begin + op]];
    suspects_.assign(members.begin(), members.end());
  }

  const Problem& problem_;
  const Options& options_;
  Stopper& stopper_;
  Result& result_;
  Fused fused_;
  std::vector<Timeline> orders_;
  std::vector<Stretch> stretches_;
  std::vector<std::int32_t> suspects_;  // members of the operator whose cut is the bound
};

}  // namespace

void run_search(const Problem& problem, const Options& options, Stopper& stopper, Result& result) {
  if (problem.op_count() == 0) return;
  Search(problem, options, stopper, result).run();
}

}  // namespace plimsoll::order
