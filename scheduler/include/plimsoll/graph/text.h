// SPDX-License-Identifier: Apache-2.0
// The plain text form of a graph, as in tests/data/graphs (format: scheduler/README.md).
//
// Noun: none of its own; see graph.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "plimsoll/graph/graph.h"

namespace plimsoll::graph {

// Reads the text form. `file` names the text in messages. One value is one storage; ids are line
// numbers. Cost: O(text). Errors: InvalidFile with the line.
Graph read_text(std::string_view text, const std::string& file);

// Reads a file. Errors: InvalidFile.
Graph read_text_file(const std::filesystem::path& path);

}  // namespace plimsoll::graph
