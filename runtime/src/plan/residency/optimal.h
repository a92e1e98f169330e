// SPDX-License-Identifier: Apache-2.0
// The exact planner for small graphs: one mixed-integer program for keep, copy and run again.
//
// Nouns: OptimalModel, OptimalResult.
//
// Stage t is what happens right before and at position t of the order; in it any op before t may
// run again once, in order of position:
//
//     stage t:  fetches | again k1 | again k2 | op t | copies out
//               ^ bytes of a fetch count from here, of a copy out until a stage begins without them
//
// Exact over the plans of that form: copies are issued between stages, at most one run of an op a
// stage, one order. Bytes are counted at every op; addresses are not.
//
// Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor
// Rematerialization", MLSys 2020, section 4. Changed: bytes are counted op by op by presence
// columns instead of free columns; storages with several writers, in-place results and second
// results; copies on two engines with their times.
#pragma once

#include <cstdint>
#include <vector>

#include "draft.h"
#include "mixed_program.h"
#include "problem.h"

namespace plimsoll::plan {

struct OptimalOptions {
  std::int64_t budget_bytes = 0;
  double most_ns = 0;  // of a plan that is known: nothing slower is looked for
  std::int64_t nodes = 20000;
};

struct OptimalResult {
  bool is_proved = false;
  // A lower bound on the time of every plan of the form above; most_ns where none is faster.
  double bound_ns = 0;
  bool has_draft = false;  // one faster than most_ns, or as fast
  Draft draft;
};

// Ops up to which it is worth trying.
constexpr std::size_t kMostOptimalOps = 24;

// Cost: exponential, bounded by the nodes. The graph must not be streamed.
OptimalResult solve_optimally(const Problem& problem, const OptimalOptions& options);

// The program and the meaning of its columns; -1 where a choice does not exist.
class OptimalModel {
 public:
  OptimalModel(const Problem& problem, const OptimalOptions& options);

  MixedProgram& program() { return program_; }
  std::size_t stages() const { return it_.order.size(); }
  // Positions of the ops that may run again in stage t, ascending, then t itself.
  const std::vector<std::size_t>& runs(std::size_t t) const { return runs_[t]; }
  bool again(std::size_t t, std::size_t k) const { return is_set(again_[t][k]); }
  bool fetches(std::size_t t, std::size_t s) const { return is_set(fetch_[t][s]); }
  bool offloads(std::size_t t, std::size_t s) const { return is_set(offload_[t][s]); }
  // While the i-th of runs(t) runs.
  bool is_present(std::size_t t, std::size_t i, std::size_t s) const {
    return is_set(present_[t][i][s]);
  }
  bool is_movable(std::size_t s) const { return is_movable_[s] != 0; }

 private:
  using Columns = std::vector<int>;
  bool is_set(int column) const { return column >= 0 && program_.value(column) > 0.5; }
  std::size_t first_write(std::size_t s) const;
  std::size_t last_write_before(std::size_t s, std::size_t t) const;
  bool may_run_again(std::size_t k, std::size_t t) const;
  bool is_used_after(std::size_t s, std::size_t t) const;
  bool can_be_held(std::size_t s, std::size_t t) const;

  void add_columns();
  void add_stage_columns(std::size_t t);
  void add_presence(std::size_t t);
  void add_needs(std::size_t t);
  void add_several_writers(std::size_t t);
  void add_bytes(std::size_t t);
  std::int64_t fixed_bytes(std::size_t t) const;
  void add_second_results(std::size_t t, std::size_t i, MixedProgram::Terms& row);
  void add_host_copies(std::size_t t);
  void add_compute_times(std::size_t t);
  void add_copy_times(std::size_t t);
  void add_waits_for_fetches(std::size_t t);
  double in_time(double ns) const { return ns / time_unit_ns_; }
  double copy_time(std::size_t s, Stream stream) const;

  const Problem& it_;
  const OptimalOptions& options_;
  double time_unit_ns_;
  double byte_unit_;
  double late_ = 1;  // no time in a solution is later
  MixedProgram program_;
  std::vector<std::uint8_t> is_movable_;
  std::vector<std::vector<std::size_t>> runs_;
  std::vector<Columns> again_, fetch_, offload_, enters_;  // by stage, then op or storage
  std::vector<std::vector<Columns>> present_;              // by stage, run, storage
  Columns start_, main_, out_, in_;                        // by stage: times
};

}  // namespace plimsoll::plan
