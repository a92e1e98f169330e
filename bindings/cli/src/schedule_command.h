// SPDX-License-Identifier: Apache-2.0
// The command `schedule`: an order of least peak memory, and how far from optimal.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_schedule_command();

}  // namespace plimsoll::cli
