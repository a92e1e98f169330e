// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace plimsoll::cli {

void add_torch_commands(Commands& commands) { static_cast<void>(commands); }

std::string built_with_libtorch() { return "none"; }

}  // namespace plimsoll::cli
