// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/solve.h"

#include <algorithm>

#include "heuristics.h"
#include "ilp.h"
#include "resident_bound.h"
#include "search.h"
#include "serenity.h"
#include "stop.h"

namespace plimsoll::order {
namespace {

void take_order(const Problem& problem, std::vector<std::int32_t> order, Result& result) {
  const std::int64_t peak = profile(problem, order).peak;
  if (!result.order.empty() && peak >= result.peak_bytes) return;
  result.order = std::move(order);
  result.peak_bytes = peak;
}

}  // namespace

const char* proof_name(Proof proof) noexcept {
  switch (proof) {
    case Proof::kNone:
      return "none";
    case Proof::kResident:
      return "resident";
    case Proof::kCut:
      return "cut";
    case Proof::kExhausted:
      return "exhausted";
  }
  return "none";
}

Result solve(const Problem& problem, const Options& options) {
  Stopper stopper(options.stop, options.time_limit_seconds);
  Result result;
  take_order(problem, problem.program, result);
  result.program_peak_bytes = result.peak_bytes;
  const ResidentBound resident = resident_bound(problem);
  result.lower_bound_bytes = resident.bytes;
  result.bound_op = resident.op;
  result.proof = Proof::kResident;
  if (!stopper()) {
    if (options.algorithm == Algorithm::kSearch) run_search(problem, options, stopper, result);
    if (options.algorithm == Algorithm::kSerenity) run_serenity(problem, options, stopper, result);
    if (options.algorithm == Algorithm::kIlp) run_ilp(problem, options, stopper, result);
    if (options.algorithm == Algorithm::kGreedy) {
      result.order.clear();
      take_order(problem, greedy_order(problem), result);
    }
  }
  result.proved = result.peak_bytes <= result.lower_bound_bytes;
  result.stopped_early = result.stopped_early || stopper();
  result.seconds = stopper.seconds();
  return result;
}

}  // namespace plimsoll::order
