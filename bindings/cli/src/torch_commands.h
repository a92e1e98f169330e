// SPDX-License-Identifier: Apache-2.0
// The commands that need LibTorch, `train` and `models`, and what `doctor` asks it.
#pragma once

#include <memory>

#include "command.h"
#include "machine_facts.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_models_command();
LibTorchFacts find_libtorch_facts();

}  // namespace plimsoll::cli
