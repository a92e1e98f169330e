// SPDX-License-Identifier: Apache-2.0
// The command `verify`: the independent checker of certificates.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_verify_command();

}  // namespace plimsoll::cli
