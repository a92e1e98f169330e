// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/version.h"

#include "command.h"
#include "doctor_command.h"
#include "torch_commands.h"

namespace plimsoll::cli {

void add_torch_commands(Commands& commands) {
  commands.push_back(make_train_command());
  commands.push_back(make_models_command());
  commands.push_back(make_doctor_command(find_libtorch_facts));
}

std::string built_with_libtorch() { return libtorch_version(); }

}  // namespace plimsoll::cli
