// SPDX-License-Identifier: Apache-2.0
// Says whether two runs are the same, bit for bit.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/train/trainer.h"

namespace plimsoll::train {

// Compares names, types, shapes and bytes in order and returns the first difference as a sentence,
// such as "gradient fc.weight differs at element 12: 0.5 against 0.25", or "" where all are equal.
// NaN equals the same NaN; 0 and -0 differ. Copies every tensor through an operator first, so
// tensors that a session has evicted may be compared.
std::string first_difference(const std::vector<NamedTensor>& expected,
                             const std::vector<NamedTensor>& actual);

// The same for whole runs: parameters, gradients, buffers, optimizer state and counters, generator.
std::string first_difference(const Trainer& expected, const Trainer& actual);

// Bits of the two losses, NaN-safe.
bool is_same_loss(float expected, float actual);

}  // namespace plimsoll::train
