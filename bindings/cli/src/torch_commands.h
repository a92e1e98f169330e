// SPDX-License-Identifier: Apache-2.0
// The commands that need LibTorch: `train`, `models`, `doctor`.
#pragma once

#include <memory>

#include "command.h"

namespace plimsoll::cli {

std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_models_command();
std::unique_ptr<Command> make_doctor_command();

}  // namespace plimsoll::cli
