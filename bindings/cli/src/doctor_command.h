// SPDX-License-Identifier: Apache-2.0
// The command `doctor`, in builds with LibTorch and without.
#pragma once

#include <functional>
#include <memory>

#include "command.h"
#include "machine_facts.h"

namespace plimsoll::cli {

using LibTorchProbe = std::function<LibTorchFacts()>;

// `probe` is empty in a build without LibTorch.
std::unique_ptr<Command> make_doctor_command(LibTorchProbe probe);

}  // namespace plimsoll::cli
