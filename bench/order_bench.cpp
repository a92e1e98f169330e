// SPDX-License-Identifier: Apache-2.0
// Orders one graph with one algorithm and prints one line of JSON.
//
//   order_bench GRAPH ALGORITHM TIME_LIMIT_SECONDS
//
// GRAPH is a text file, or resnet:OPS, layers:OPS, chain:OPS for a generated graph.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "plimsoll/graph/text.h"
#include "plimsoll/order/from_graph.h"

#include "order_graphs.h"

namespace {

plimsoll::graph::Graph load(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return plimsoll::graph::read_text_file(text);
  const std::int64_t ops = std::atoll(text.c_str() + colon + 1);
  const std::string kind = text.substr(0, colon);
  if (kind == "resnet") return plimsoll::bench::resnet_training(ops);
  if (kind == "layers") return plimsoll::bench::wide_layers(ops, 1000, 1);
  return plimsoll::bench::deep_chain(ops);
}

std::int64_t most_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

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
  const auto graph = load(argv[1]);
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
                         {"stopped_early", result.stopped_early},
                         {"resident_bytes", most_resident_bytes()},
                         {"note", result.note}};
  std::puts(json.dump().c_str());
  return 0;
}
