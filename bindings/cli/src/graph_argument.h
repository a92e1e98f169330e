// SPDX-License-Identifier: Apache-2.0
// The argument GRAPH that several commands take.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "plimsoll/graph/graph.h"

namespace plimsoll::cli {

class GraphArgument {
 public:
  void declare(CLI::App& app);
  // Errors: InvalidFile, InvalidArgument.
  graph::Graph read() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> dimensions_;
};

}  // namespace plimsoll::cli
