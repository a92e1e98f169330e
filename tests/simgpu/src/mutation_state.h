// SPDX-License-Identifier: Apache-2.0
// Asks the mutation of the moment, if any, whether a point of order is left out.
#pragma once

#include "simgpu/mutations.h"

namespace plimsoll::simgpu {

// Threads: safe.
bool is_left_out(SyncKind kind, std::optional<c10::Stream> waiting,
                 std::optional<c10::Stream> awaited);

}  // namespace plimsoll::simgpu
