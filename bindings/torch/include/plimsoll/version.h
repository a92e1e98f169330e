// SPDX-License-Identifier: Apache-2.0
// The LibTorch release that Plimsoll was built with and the one that is loaded.
#pragma once

#include <string>

namespace plimsoll {

// Returns the release of the headers this library was compiled with, such as "2.15.0".
std::string libtorch_version();

}  // namespace plimsoll
