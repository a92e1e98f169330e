// SPDX-License-Identifier: Apache-2.0
// What the program says to a command line that cannot be parsed.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace plimsoll::cli {

// One line that starts with the program or the command and names the flag or the word, its value
// and what would be right, the nearest name included. `words` is what was typed behind "plimsoll",
// of which `program` has just thrown `error`.
std::string usage_error(const CLI::App& program, const CLI::ParseError& error,
                        const std::vector<std::string>& words);

}  // namespace plimsoll::cli
