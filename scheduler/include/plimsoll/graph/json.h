// SPDX-License-Identifier: Apache-2.0
// The JSON form of a graph, version 1 (format: scheduler/README.md).
//
// Noun: none of its own; see graph.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "plimsoll/graph/graph.h"

namespace plimsoll::graph {

// Reads the JSON form. `file` names the text in messages. Reads in one pass with one element of
// "storages", "values" or "ops" in memory at a time; nesting is limited to 6 levels.
// Errors: InvalidFile with a byte (syntax) or a path such as "ops[4].operands[1]" (content).
Graph read_json(std::string_view text, const std::string& file);

// Reads a file of at most 1 GiB. Errors: InvalidFile.
Graph read_json_file(const std::filesystem::path& path);

// Writes what read_json reads back as an equal graph. Deterministic: one element a line.
std::string write_json(const Graph& graph);

// Reads .json, .onnx or .txt, by the name's ending. Errors: InvalidFile.
Graph read_graph_file(const std::filesystem::path& path);

}  // namespace plimsoll::graph
