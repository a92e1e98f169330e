// SPDX-License-Identifier: Apache-2.0
// Which operator runs on this thread, for the account of level 0.
//
// Noun: OperatorTrail, fed by LibTorch's record-function callbacks on every thread.
#pragma once

#include "plimsoll/allocator.h"

namespace plimsoll::detail {

class OperatorTrail {
 public:
  // Starts (or stops) following operators. Threads: safe.
  static void attach(bool wanted);
  // The innermost operator of this thread that does not merely make an empty tensor; "" outside of
  // operators. The text lives for ever.
  static const char* current_operator();
  static AllocationKind current_kind();
};

}  // namespace plimsoll::detail
