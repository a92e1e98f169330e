// SPDX-License-Identifier: Apache-2.0
// What is known of an operator before it runs.
//
// Nouns: OperatorFacts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace plimsoll::simgpu {

struct OperatorFacts {
  std::string name;          // "aten::add.out"
  std::vector<bool> writes;  // each argument: by schema, or known to in spite of it
  int generator_argument = -1;
  // Its results' sizes depend on values, or it returns values: the host waits, as with CUDA.
  bool is_synchronous = false;
  // Numbers of floating point change no result's metadata, so that a call with another learning
  // rate is the same call.
  bool ignores_doubles = false;
  // Takes host tensors of more than one element beside device tensors.
  bool takes_host_tensors = false;
};

// Threads: safe.
const OperatorFacts& facts_of(const c10::OperatorHandle& op);

}  // namespace plimsoll::simgpu
