// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/onnx.h"
#include "plimsoll/graph/text.h"

namespace plimsoll::graph {

Graph read_graph_file(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".txt") return read_text_file(path);
  if (ending == ".onnx") return read_onnx_file(path);
  if (ending == ".json") return read_json_file(path);
  throw InvalidFile(path.string(), "", "ends in none of .json, .onnx, .txt");
}

}  // namespace plimsoll::graph
