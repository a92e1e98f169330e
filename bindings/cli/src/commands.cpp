// SPDX-License-Identifier: Apache-2.0
#include "command.h"
#include "superneurons_command.h"

namespace plimsoll::cli {

void add_commands(Commands& commands) { commands.push_back(make_superneurons_command()); }

}  // namespace plimsoll::cli
