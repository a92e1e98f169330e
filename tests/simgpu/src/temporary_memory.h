// SPDX-License-Identifier: Apache-2.0
// Counts what this thread takes from LibTorch's CPU allocator while one lives: a CPU kernel's
// results and temporaries.
//
// Nouns: TemporaryMemory.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace plimsoll::simgpu {

class TemporaryMemory {
 public:
  TemporaryMemory();
  // The most that was held at one time.
  std::int64_t peak_bytes() const;

 private:
  class Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace plimsoll::simgpu
