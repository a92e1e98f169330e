// SPDX-License-Identifier: Apache-2.0
// What the happens-before checker of the device has found.
//
// Nouns: Race (two accesses to the same bytes that nothing orders), RaceCounts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::simgpu {

struct Race {
  std::string first_operation;
  std::string first_stream;
  std::string second_operation;
  std::string second_stream;
  bool first_writes = false;
  bool second_writes = false;
  std::uintptr_t begin = 0;  // of the bytes both touch
  std::uintptr_t end = 0;
  std::string text() const;
};

struct RaceCounts {
  std::int64_t accesses = 0;  // checked so far
  std::int64_t races = 0;     // found so far, kept or not
};

// The races found since the last call, at most the first 200. Does not wait for the device: a race
// is found when its second operation is issued.
// Threads: safe.
std::vector<Race> take_races();
RaceCounts race_counts();

}  // namespace plimsoll::simgpu
