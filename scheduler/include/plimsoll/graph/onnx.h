// SPDX-License-Identifier: Apache-2.0
// ONNX models as graphs (what is counted and what is inferred: scheduler/README.md).
//
// Noun: OnnxOptions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "plimsoll/graph/graph.h"

namespace plimsoll::graph {

struct OnnxOptions {
  // Extents for symbolic dimensions, by name, such as {"batch", 1}.
  std::map<std::string, std::int64_t> dimensions;
};

// Reads a model. `file` names it in messages and locates external data, of which only small integer
// tensors that decide shapes are read, and only below the model's own folder. Weights are not
// counted: inputs count from the start to their last use, outputs to the end. Declared shapes win
// over inferred ones. Nodes whose results are known constants are folded away.
// Errors: InvalidFile with the byte (malformed protobuf) or the node and tensor (no shape known,
// contradictory shapes, two producers, cycles, names nothing produces).
Graph read_onnx(std::string_view bytes, const std::string& file, const OnnxOptions& options = {});

// Reads a file of at most 1 GiB. Errors: InvalidFile.
Graph read_onnx_file(const std::filesystem::path& path, const OnnxOptions& options = {});

}  // namespace plimsoll::graph
