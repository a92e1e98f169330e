// SPDX-License-Identifier: Apache-2.0
// What works with the LibTorch that is loaded and what does not, found by trying.
//
// Noun: Capabilities.
#pragma once

#include <string>

namespace plimsoll {

struct Capabilities {
  // Threads that LibTorch's operators take on the calling thread.
  int operator_threads = 0;
  // Those that a session's copies on the CPU take: fewer where Plimsoll was compiled without the
  // OpenMP library that LibTorch uses.
  int copy_threads = 0;
  // SessionOptions::strict_pointers; not with LibTorch 2.11.
  bool can_forbid_pointers = false;
  // Why no session holds the memory of CUDA devices; "" where one can.
  std::string cuda_refusal;
};

// Threads: safe. Cost: starts the operator threads where they do not run yet.
Capabilities find_capabilities();

}  // namespace plimsoll
