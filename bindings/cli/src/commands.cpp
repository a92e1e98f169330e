// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace plimsoll::cli {

void add_commands(Commands& commands) { static_cast<void>(commands); }

}  // namespace plimsoll::cli
