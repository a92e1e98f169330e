// SPDX-License-Identifier: Apache-2.0
// A longer search from decisions that a rung has found, for budgets so small that steps are slow.
//
// Noun: AnnealOptions.
#pragma once

#include <optional>
#include <vector>

#include "rung.h"

namespace plimsoll::plan {

struct AnnealOptions {
  int tries = 0;
  double least_ns = 0;  // nothing faster is looked for
};

// Changes a few gaps at a time, or all gaps alike of a stretch of the step (blocks repeat), and
// keeps what is faster once it has addresses, or little slower as long as it is early (simulated
// annealing: Kirkpatrick, Gelatt and Vecchi 1983). The fastest found, the starts among them;
// nothing where there is none that takes `least_ns` or more. Deterministic. Cost: a replay a try,
// and an arrangement where that promises well.
std::optional<RungResult> anneal(const Problem& problem, const std::vector<double>& drop_ns,
                                 const std::vector<RungResult>& starts,
                                 const AnnealOptions& options);

}  // namespace plimsoll::plan
