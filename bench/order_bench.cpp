// SPDX-License-Identifier: Apache-2.0
// Orders one graph with one algorithm and prints one line of JSON.
//
//   order_bench GRAPH ALGORITHM TIME_LIMIT_SECONDS [RULE_TO_SWITCH_OFF...]
//
// GRAPH is a text file, or resnet:OPS, layers:OPS, chain:OPS for a generated graph.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "plimsoll/graph/text.h"
#include "plimsoll/order/from_graph.h"

#include "made_graphs.h"

namespace {

plimsoll::graph::Graph load(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return plimsoll::graph::read_text_file(text);
  const std::int64_t ops = std::stoll(text.substr(colon + 1));
  const std::string kind = text.substr(0, colon);
  if (kind == "resnet") return plimsoll::order::testing::resnet_training(ops);
  if (kind == "layers") return plimsoll::order::testing::wide_layers(ops, 1000, 1);
  return plimsoll::order::testing::deep_chain(ops);
}

bool switch_off(const std::string& rule, plimsoll::order::Options& options) {
  using plimsoll::order::FusionRules;
  using plimsoll::order::SearchRules;
  const std::pair<const char*, bool FusionRules::*> fusion[] = {
      {"forward", &FusionRules::forward},       {"lazy", &FusionRules::lazy},
      {"chains", &FusionRules::chains},         {"readers", &FusionRules::readers},
      {"transitive", &FusionRules::transitive}, {"twins", &FusionRules::twins}};
  const std::pair<const char*, bool SearchRules::*> search[] = {
      {"forward_commits", &SearchRules::forward_commits},
      {"chain_commits", &SearchRules::chain_commits},
      {"late_commits", &SearchRules::late_commits},
      {"backward_commits", &SearchRules::backward_commits},
      {"separators", &SearchRules::separators},
      {"failed_states", &SearchRules::failed_states},
      {"budget_jumps", &SearchRules::budget_jumps},
      {"min_cuts", &SearchRules::min_cuts},
      {"beam", &SearchRules::beam},
      {"windows", &SearchRules::windows}};
  bool known = rule == "fusion";
  for (const auto& [name, member] : fusion) {
    if (rule != name && rule != "fusion") continue;
    options.fusion.*member = false;
    known = true;
  }
  for (const auto& [name, member] : search) {
    if (rule != name) continue;
    options.rules.*member = false;
    known = true;
  }
  return known;
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
  options.time_limit_seconds = std::stod(argv[3]);
  for (int i = 4; i < argc; ++i) {
    if (switch_off(argv[i], options)) continue;
    std::fprintf(stderr, "order_bench: there is no rule %s\n", argv[i]);
    return 2;
  }
  const auto graph = load(argv[1]);
  const auto result = plimsoll::order::solve(graph, options);
  nlohmann::json json = {{"graph", argv[1]},
                         {"algorithm", name},
                         {"ops", graph.op_count()},
                         {"peak_bytes", result.peak_bytes},
                         {"program_peak_bytes", result.program_peak_bytes},
                         {"lower_bound_bytes", result.lower_bound_bytes},
                         {"proved", result.proved()},
                         {"proof", plimsoll::order::bound_proof_name(result.proof)},
                         {"pinned_bytes", result.pinned_by.bytes},
                         {"ilp_variables", result.ilp_variables},
                         {"ilp_variables_pruned", result.ilp_variables_pruned},
                         {"seconds", result.seconds},
                         {"states", result.states},
                         {"fused_ops", result.fused_ops},
                         {"stopped_early", result.stopped_early},
                         {"resident_bytes", most_resident_bytes()},
                         {"note", result.note}};
  std::puts(json.dump().c_str());
  return 0;
}
