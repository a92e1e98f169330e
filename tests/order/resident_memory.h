// SPDX-License-Identifier: Apache-2.0
// How much memory this process has held at most.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace plimsoll::order::testing {

inline std::int64_t most_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace plimsoll::order::testing
