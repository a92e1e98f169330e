// SPDX-License-Identifier: Apache-2.0
// One policy's search: plans for a ladder of budgets, in several orders.
//
// Noun: PolicyPlanner.
//
//     level    0    1    2    3  ...        each level is searched once, from what the one below
//     plans    -    a    b    c  ...        found; a budget may use every plan of the levels up to
//                                           it whose arena fits
//
// `auto` has rivals: whatever the planner of another policy would answer is among its plans. They
// are asked last, for what is faster than its own answer, so that most of their tries end early.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/plan/residency.h"

#include "choose.h"
#include "found_plans.h"
#include "mix.h"
#include "problem.h"
#include "rung.h"

namespace plimsoll::plan {

// A plan and whose it is.
struct Pick {
  const Found* found = nullptr;
  Policy policy = Policy::kAuto;
  std::string order_name;
};

class PolicyPlanner {
 public:
  // The graph and the device must outlive it.
  PolicyPlanner(const graph::Graph& graph, const DeviceModel& device,
                const PlannerOptions& options);

  const PlanBounds& bounds() const { return bounds_; }
  const std::vector<Problem>& problems() const { return problems_; }

  // The fastest plan below `limit_ns`; `found` is null where there is none.
  Pick fastest(std::int64_t budget_bytes, double limit_ns = FoundPlans::kAnyTime);
  // The smallest budget below the limit that there is a plan for, else the limit.
  std::int64_t least_budget(std::int64_t limit_bytes);
  // Adds and lays out a plan from elsewhere. Returns its arena's size.
  std::int64_t add_plan(std::size_t order, const ReplayResult& made, std::int64_t budget_bytes);

 private:
  void add_order(const std::vector<graph::OpId>& order, const OpCosts& costs, const char* name);
  void add_solved_orders(const OpCosts& costs);
  std::vector<graph::OpId> residual_order() const;
  void add_rivals();
  void add_stock();
  void make_ladder();
  std::size_t lowest_rung() const;
  void climb(std::int64_t budget_bytes, double limit_ns);
  void anneal_up_to(std::int64_t budget_bytes);
  void anneal_rung(std::size_t rung, std::size_t order);
  void search_next();
  void search_below(std::size_t rung, double limit_ns);
  Found& add(std::size_t order, RungResult result, std::int64_t level_bytes);
  bool moves() const;
  bool is_ours() const;
  bool is_large() const;
  int tries() const;

  const graph::Graph& graph_;
  const DeviceModel& device_;
  PlannerOptions options_;
  std::vector<Problem> problems_;  // by order
  std::vector<std::string> names_;
  std::vector<std::vector<double>> drop_ns_;
  // By order: the best of the last rung at which anything was found.
  std::vector<Decisions> warm_;
  std::vector<double> last_ns_;
  std::vector<MixPoint> mix_;
  PlanBounds bounds_;
  FoundPlans found_;
  std::vector<std::int64_t> ladder_;
  // Of our own policies, which search every rung once.
  std::size_t first_rung_ = 0;  // at which anything fits
  std::size_t next_rung_ = 0;
  // By order, for the longer search: what each rung found, in order of rungs, and what that search
  // found last.
  struct Start {
    std::size_t rung = 0;
    RungResult found;  // without its replay
  };
  std::vector<std::vector<Start>> starts_;
  std::vector<std::optional<RungResult>> annealed_last_;
  FoundPlans annealed_;
  std::size_t next_annealed_ = 0;  // rung
  // Of the others, by rung: below which time they were searched.
  std::vector<double> searched_ns_;
  std::vector<std::unique_ptr<PolicyPlanner>> rivals_;
};

}  // namespace plimsoll::plan
