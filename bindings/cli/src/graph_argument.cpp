// SPDX-License-Identifier: Apache-2.0
#include "graph_argument.h"

#include <charconv>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/onnx.h"

namespace plimsoll::cli {

void GraphArgument::declare(CLI::App& app) {
  app.add_option("graph", path_, "A graph: FILE.json, FILE.onnx or FILE.txt")
      ->required()
      ->type_name("GRAPH");
  app.add_option("--dim", dimensions_, "An extent for a symbolic dimension of an ONNX model")
      ->type_name("NAME=N")
      ->expected(1)
      ->take_all();
}

graph::Graph GraphArgument::read() const {
  graph::OnnxOptions options;
  for (const std::string& text : dimensions_) {
    const std::size_t equals = text.find('=');
    std::int64_t extent = 0;
    const char* const last = text.data() + text.size();
    const char* const first = equals == std::string::npos ? last : text.data() + equals + 1;
    const auto [end, status] = std::from_chars(first, last, extent);
    if (status != std::errc() || end != last || extent < 1)
      throw InvalidArgument(fmt::format(
          "--dim: '{}' is not NAME=N with a whole number of 1 or more, such as batch=1", text));
    options.dimensions[text.substr(0, equals)] = extent;
  }
  if (path_.ends_with(".onnx")) return graph::read_onnx_file(path_, options);
  if (!dimensions_.empty())
    throw InvalidArgument("--dim: only ONNX models have symbolic dimensions");
  return graph::read_graph_file(path_);
}

}  // namespace plimsoll::cli
