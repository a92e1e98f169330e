// SPDX-License-Identifier: Apache-2.0
// The command `plan`: order, residency and addresses for a device that need not be here.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_plan_command();

}  // namespace plimsoll::cli
