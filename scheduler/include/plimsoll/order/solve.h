// SPDX-License-Identifier: Apache-2.0
// Orders of least peak, with a bound and a proof where one was found.
//
// Nouns: Options (Algorithm, FusionRules, SearchRules), Result (Proof, Pin).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plimsoll/order/cut.h"
#include "plimsoll/order/fusion.h"
#include "plimsoll/order/problem.h"

namespace plimsoll::order {

enum class Algorithm : std::uint8_t {
  kSearch,    // exact and anytime, the default
  kSerenity,  // Ahn et al., "Ordering Chaos" (MLSys 2020)
  kIlp,       // iterative graph optimisation (ICCAD 2023), through HiGHS
  kGreedy,    // least growth first
  kProgram,   // the order of the indices
};

// Rules of the search. None changes the optimum; each costs or saves time.
struct SearchRules {
  bool forward_commits = true;   // run at once what cannot hurt
  bool chain_commits = true;     // the same for chains that come back to the level
  bool late_commits = true;      // the same for any set, found after the fact by a small min cut
  bool backward_commits = true;  // place last what cannot hurt
  bool separators = true;        // solve the parts between states that every order passes
  bool failed_states = true;     // remember what completing a state costs at least
  bool budget_jumps = true;      // after a failure, go to the next level that was rejected
  bool min_cuts = true;          // lower bounds by min cut
  bool beam = true;              // when it has not closed: beam search
  bool windows = true;           // and exact re-optimisation of windows around the peak
};

struct Options {
  Algorithm algorithm = Algorithm::kSearch;
  FusionRules fusion;
  SearchRules rules;
  double time_limit_seconds = 60;      // 0 gives program order at once; negative: none
  std::int64_t work_limit = -1;        // in operator visits, which repeat exactly; negative: none
  std::function<bool()> stop;          // asked often; true ends the search with what is there
  std::int64_t table_bytes = 1 << 30;  // most memory for the table of states
  std::int64_t serenity_states = 200000;  // a step's time-out in SERENITY, at first (it doubles)
  std::int32_t ilp_ops = 40;              // most fused operators that kIlp accepts
};

// What stands behind the lower bound.
enum class Proof : std::uint8_t {
  kNone,       // the bound lies below the peak
  kResident,   // bytes live before the first or after the last operator, or that one touches
  kCut,        // a min cut: see BoundEvidence
  kExhausted,  // no order below the bound: every one was excluded
};

const char* proof_name(Proof proof) noexcept;

// An operator whose run level no order can lower below `bytes`.
struct Pin {
  std::int32_t op = -1;
  std::int64_t bytes = 0;              // the bound
  std::vector<std::int32_t> storages;  // live in the cheapest state in which it runs, ascending
};

struct Result {
  std::vector<std::int32_t> order;  // always a topological order
  std::int64_t peak_bytes = 0;
  std::int64_t program_peak_bytes = 0;
  std::int64_t lower_bound_bytes = 0;  // <= the peak of every order
  bool proved = false;                 // peak == lower bound
  Proof proof = Proof::kNone;
  std::int32_t bound_op = -1;  // kResident, kCut: the operator whose cheapest state is the bound
  // Positions in `order`: every order passes the state before each of them, so that the proof can
  // be re-done on each stretch [separators[i], separators[i + 1]) alone. Ascending, first 0, last
  // the number of operators.
  std::vector<std::int64_t> separators;
  Pin pinned_by;
  std::int64_t states = 0;
  double seconds = 0;
  bool stopped_early = false;  // a limit ended the search; a repeat may differ if it was time
  std::int32_t fused_ops = 0;  // operators left after fusion
  std::int32_t segments = 0;
  std::int64_t ilp_variables = 0;         // kIlp: of the plain formulation
  std::int64_t ilp_variables_pruned = 0;  // kIlp: that were solved for
  std::string note;                       // one line, where an algorithm could not do its work
};

// Finds an order. Pure but for the clock; safe to call from several threads on one problem.
// Deterministic unless a time limit or `stop` ends it. Cost: linear for graphs that commit
// throughout; exponential in the worst case, bounded by the limits. Memory: about 100 bytes an edge
// plus table_bytes.
// Errors: InvalidArgument where kIlp gets more fused operators than ilp_ops.
// Source: our own search; Ahn et al. 2020 section 3 for kSerenity.
Result solve(const Problem& problem, const Options& options);

}  // namespace plimsoll::order
