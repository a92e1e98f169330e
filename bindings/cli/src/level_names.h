// SPDX-License-Identifier: Apache-2.0
// The words of `train --level` and `train --policy`: those that work, and those kept for later.
#pragma once

#include <array>

namespace plimsoll::cli {

inline constexpr std::array kLevels = {"auto", "allocator", "eager"};
inline constexpr std::array kLaterLevels = {"planned", "guided", "captured"};
inline constexpr std::array kPolicies = {"auto", "offload-only", "lru"};
inline constexpr std::array kLaterPolicies = {"none", "liveness", "superneurons", "recompute-only",
                                              "optimal"};

}  // namespace plimsoll::cli
