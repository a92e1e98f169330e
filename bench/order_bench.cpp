// SPDX-License-Identifier: Apache-2.0
// Orders one graph with one algorithm and prints one line of JSON.
//
//   order_bench GRAPH.txt ALGORITHM TIME_LIMIT_SECONDS
#include <cstdio>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "plimsoll/graph/text.h"
#include "plimsoll/order/from_graph.h"

int main(int argc, char** argv) {
  using plimsoll::order::Algorithm;
  if (argc < 4) {
    std::fputs("usage: order_bench GRAPH.txt search|serenity|ilp|greedy|program SECONDS\n", stderr);
    return 2;
  }
  const std::string name = argv[2];
  plimsoll::order::Options options;
  options.algorithm = name == "serenity"  ? Algorithm::kSerenity
                      : name == "ilp"     ? Algorithm::kIlp
                      : name == "greedy"  ? Algorithm::kGreedy
                      : name == "program" ? Algorithm::kProgram
                                          : Algorithm::kSearch;
  options.time_limit_seconds = std::atof(argv[3]);
  const auto graph = plimsoll::graph::read_text_file(argv[1]);
  const auto result = plimsoll::order::solve(graph, options);
  nlohmann::json json = {{"graph", argv[1]},
                         {"algorithm", name},
                         {"ops", graph.op_count()},
                         {"peak_bytes", result.peak_bytes},
                         {"program_peak_bytes", result.program_peak_bytes},
                         {"lower_bound_bytes", result.lower_bound_bytes},
                         {"proved", result.proved()},
                         {"seconds", result.seconds},
                         {"states", result.states},
                         {"fused_ops", result.fused_ops},
                         {"note", result.note}};
  std::puts(json.dump().c_str());
  return 0;
}
