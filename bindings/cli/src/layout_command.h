// SPDX-License-Identifier: Apache-2.0
// The command `layout`: lifetimes in, addresses out.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_layout_command();

}  // namespace plimsoll::cli
