// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/version.h"

#include <torch/version.h>

namespace plimsoll {

std::string libtorch_version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

}  // namespace plimsoll
