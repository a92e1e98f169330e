// SPDX-License-Identifier: Apache-2.0
// Noun: the command `explain`.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_explain_command();

}  // namespace plimsoll::cli
