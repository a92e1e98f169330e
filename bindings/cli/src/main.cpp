// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "command.h"

int main(int argc, char** argv) {
  plimsoll::cli::Commands commands;
  plimsoll::cli::add_torch_commands(commands);
  plimsoll::cli::add_commands(commands);
  return plimsoll::cli::run_program(argc, argv, std::move(commands),
                                    plimsoll::cli::built_with_libtorch());
}
