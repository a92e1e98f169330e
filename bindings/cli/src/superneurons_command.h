// SPDX-License-Identifier: Apache-2.0
// The command `superneurons`: the paper's layer model and its step table.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_superneurons_command();

}  // namespace plimsoll::cli
