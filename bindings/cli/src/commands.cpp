// SPDX-License-Identifier: Apache-2.0
#include "command.h"
#include "explain_command.h"
#include "layout_command.h"
#include "plan_command.h"
#include "schedule_command.h"
#include "superneurons_command.h"
#include "verify_command.h"

namespace plimsoll::cli {

void add_commands(Commands& commands) {
  commands.push_back(make_schedule_command());
  commands.push_back(make_verify_command());
  commands.push_back(make_superneurons_command());
  commands.push_back(make_explain_command());
  commands.push_back(make_plan_command());
  commands.push_back(make_layout_command());
}

}  // namespace plimsoll::cli
