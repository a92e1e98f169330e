// SPDX-License-Identifier: Apache-2.0
#include "schedule_command.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/size.h"
#include "plimsoll/graph/draw.h"
#include "plimsoll/graph/json.h"
#include "plimsoll/graph/memory.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"
#include "plimsoll/rewrite/rewrite.h"

#include "graph_argument.h"

namespace plimsoll::cli {
namespace {

using graph::Graph;
using graph::OpId;
using order::OrderResult;

constexpr std::array<std::pair<std::string_view, order::Algorithm>, 5> kAlgorithms = {
    {{"search", order::Algorithm::kSearch},
     {"serenity", order::Algorithm::kSerenity},
     {"ilp", order::Algorithm::kIlp},
     {"greedy", order::Algorithm::kGreedy},
     {"program", order::Algorithm::kProgram}}};

constexpr std::array<std::pair<std::string_view, bool order::FusionRules::*>, 6> kFusionRules = {
    {{"forward", &order::FusionRules::forward},
     {"lazy", &order::FusionRules::lazy},
     {"chains", &order::FusionRules::chains},
     {"readers", &order::FusionRules::readers},
     {"transitive", &order::FusionRules::transitive},
     {"twins", &order::FusionRules::twins}}};

std::string storage_name(const Graph& graph, graph::StorageId s) {
  const graph::ValueId v = graph.values(s).front();
  if (!graph.name(v).empty()) return std::string(graph.name(v));
  const OpId producer = graph.producer(v);
  return producer.valid() ? fmt::format("value {} of op {} ({})", v.value(), producer.value(),
                                        graph.name(producer))
                          : fmt::format("value {}, live from the start", v.value());
}

std::string op_name(const Graph& graph, OpId o) {
  return o.valid() ? fmt::format("op {} ({})", o.value(), graph.name(o)) : "the start or the end";
}

class ScheduleCommand final : public Command {
 public:
  std::string name() const override { return "schedule"; }
  std::string summary() const override {
    return "An order of least peak memory for a graph, and how far from optimal";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll schedule tests/data/graphs/inference/darts-imagenet.onnx --json -",
            "plimsoll schedule tests/data/graphs/inference/randwire1-wsum-32.txt --certificate "
            "order.json --svg order.svg --require-proof"};
  }
  void declare(CLI::App& app) override {
    graph_.declare(app);
    app.add_option("--algorithm", algorithm_, "search, serenity, ilp, greedy or program")
        ->capture_default_str()
        ->type_name("NAME");
    app.add_option(
           "--no-fusion", no_fusion_,
           "Switch a fusion rule off: forward, lazy, chains, readers, transitive, twins, all")
        ->type_name("RULE")
        ->expected(1)
        ->take_all();
    app.add_flag("--rewrite", rewrite_,
                 "Push convolutions through concatenations where that lowers the peak");
    app.add_flag("--exact-only", exact_only_,
                 "With --rewrite: only what changes no bit of any result");
    app.add_option("--time-limit", time_limit_, "Seconds for the search")
        ->capture_default_str()
        ->type_name("S");
    app.add_option("--budget", budget_,
                   "Refuse an order above SIZE; percent of program order's peak")
        ->type_name("SIZE");
    app.add_option("--order-out", order_out_, "Write the order, one op a line: id, name")
        ->type_name("FILE");
    app.add_option("--graph-out", graph_out_, "Write the graph that the order is of, as JSON")
        ->type_name("FILE");
    app.add_option("--certificate", certificate_, "Write what `verify` checks")->type_name("FILE");
    app.add_option("--svg", svg_, "Draw the memory over the order")->type_name("FILE");
    app.add_option("--html", html_, "Write a page with the drawing and what is live at the peak")
        ->type_name("FILE");
    app.add_option("--dot", dot_, "Write the graph for Graphviz")->type_name("FILE");
    app.add_flag("--require-proof", require_proof_,
                 "Exit with 1 unless the order is proved optimal");
  }

  ExitCode run(Console& console, Json& result) override {
    const order::Options options = solver_options();
    const SizeSpec budget = budget_.empty() ? SizeSpec() : parse_size_spec(budget_, "--budget");
    for (const auto& [path, flag] : outputs()) {
      if (!path.empty()) check_writable(path, flag);
    }
    Graph graph = graph_.read();
    // Of the graph as given, also where it is rewritten.
    const std::int64_t program_peak = graph::peak_bytes(graph, graph.program_order());
    const OrderResult solved = solve(graph, options, result);
    Console::throw_if_interrupted();
    describe(graph, solved, program_peak, result);
    write_files(graph, solved, budget, program_peak);
    print(console, graph, solved, program_peak, result);
    check_budget(graph, solved, budget, program_peak);
    if (require_proof_ && !solved.proved()) {
      console.warn(fmt::format(
          "plimsoll schedule: not proved: the peak is {} bytes, the lower bound {} bytes",
          solved.peak_bytes, solved.lower_bound_bytes));
      return kCheckFailed;
    }
    return kDone;
  }

 private:
  std::array<std::pair<std::string, std::string>, 6> outputs() const {
    return {{{order_out_, "--order-out"},
             {graph_out_, "--graph-out"},
             {certificate_, "--certificate"},
             {svg_, "--svg"},
             {html_, "--html"},
             {dot_, "--dot"}}};
  }

  order::Options solver_options() const {
    order::Options options;
    bool known = false;
    for (const auto& [name, algorithm] : kAlgorithms) {
      if (name != algorithm_) continue;
      options.algorithm = algorithm;
      known = true;
    }
    if (!known)
      throw InvalidArgument(fmt::format(
          "--algorithm: '{}' is none of search, serenity, ilp, greedy, program", algorithm_));
    for (const std::string& rule : no_fusion_) {
      bool found = false;
      for (const auto& [name, member] : kFusionRules) {
        if (rule != name && rule != "all") continue;
        options.fusion.*member = false;
        found = true;
      }
      if (!found)
        throw InvalidArgument(
            fmt::format("--no-fusion: '{}' is none of forward, lazy, chains, readers, transitive, "
                        "twins, all",
                        rule));
    }
    if (!std::isfinite(time_limit_) || time_limit_ < 0)
      throw InvalidArgument(fmt::format(
          "--time-limit: {} is not a number of seconds; write 0 or more, such as 10", time_limit_));
    options.time_limit_seconds = time_limit_;
    options.stop = [] { return Console::interrupted(); };
    return options;
  }

  // Solves the graph; with --rewrite, replaces it by what the order is of.
  OrderResult solve(Graph& graph, const order::Options& options, Json& result) const {
    const auto solver = [&options](const Graph& g) { return order::solve(g, options); };
    if (!rewrite_) {
      if (exact_only_) throw InvalidArgument("--exact-only: goes with --rewrite only");
      return solver(graph);
    }
    rewrite::Rewritten rewritten =
        rewrite::rewrite_where_it_pays(graph, solver, {.exact_only = exact_only_});
    result["rewrite_candidates"] = rewritten.candidates;
    result["rewritten"] = rewritten.applied.size();
    result["peak_before_rewrite_bytes"] = rewritten.peak_before_bytes;
    graph = std::move(rewritten.graph);
    return std::move(rewritten.solved);
  }

  static Json pin_json(const Graph& graph, const OrderResult& solved) {
    const order::StoragePin& pin = solved.pinned_by;
    Json tensors = Json::array();
    for (const graph::StorageId s : pin.storages)
      tensors.push_back({{"name", storage_name(graph, s)}, {"bytes", graph.size_bytes(s)}});
    return {{"op", op_name(graph, pin.op)},
            {"op_id", pin.op.value()},
            {"pinned_bytes", pin.bytes},
            {"tensors", tensors}};
  }

  void describe(const Graph& graph, const OrderResult& solved, std::int64_t program_peak,
                Json& result) const {
    result["graph"] = graph_.path();
    result["algorithm"] = algorithm_;
    result["ops"] = graph.op_count();
    result["values"] = graph.value_count();
    result["peak_bytes"] = solved.peak_bytes;
    result["program_peak_bytes"] = program_peak;
    result["lower_bound_bytes"] = solved.lower_bound_bytes;
    result["proved"] = solved.proved();
    result["proof"] = order::bound_proof_name(solved.proof);
    result["pinned_by"] = pin_json(graph, solved);
    result["seconds"] = solved.seconds;
    result["states"] = solved.states;
    result["fused_ops"] = solved.fused_ops;
    result["stopped_early"] = solved.stopped_early;
    if (solved.ilp_variables > 0) {
      result["ilp_variables"] = solved.ilp_variables;
      result["ilp_variables_pruned"] = solved.ilp_variables_pruned;
    }
    if (!solved.note.empty()) result["note"] = solved.note;
    Json order = Json::array();
    for (const OpId o : solved.order) order.push_back(o.value());
    result["order"] = std::move(order);
  }

  void write_files(const Graph& graph, const OrderResult& solved, const SizeSpec& budget,
                   std::int64_t program_peak) const {
    if (!order_out_.empty()) {
      std::string lines;
      for (const OpId o : solved.order) lines += fmt::format("{} {}\n", o.value(), graph.name(o));
      write_file(order_out_, lines, "--order-out");
    }
    if (!graph_out_.empty()) write_file(graph_out_, graph::write_json(graph), "--graph-out");
    if (!certificate_.empty())
      write_file(certificate_, order::write_certificate(order::make_certificate(graph, solved)),
                 "--certificate");
    if (!dot_.empty()) write_file(dot_, graph::write_dot(graph), "--dot");
    std::vector<graph::DrawnOrder> orders = {{algorithm_, solved.order}};
    if (algorithm_ != "program") orders.push_back({"program order", graph.program_order()});
    graph::DrawingOptions drawing;
    drawing.title = graph_.path();
    drawing.lower_bound_bytes = solved.lower_bound_bytes;
    if (budget.kind != SizeSpec::Kind::kNone && budget.kind != SizeSpec::Kind::kMinimum)
      drawing.budget_bytes = budget.resolve(program_peak, 0);
    if (!svg_.empty()) write_file(svg_, graph::write_svg(graph, orders, drawing), "--svg");
    if (!html_.empty()) write_file(html_, graph::write_html(graph, orders, drawing), "--html");
  }

  void print(Console& console, const Graph& graph, const OrderResult& solved,
             std::int64_t program_peak, const Json& result) const {
    console.print(
        fmt::format("{}: {} ops, {} values", graph_.path(), graph.op_count(), graph.value_count()));
    console.print(fmt::format("  program order  {:>14} bytes", program_peak));
    if (result.contains("rewritten"))
      console.print(fmt::format("  not rewritten  {:>14} bytes  ({} of {} places rewritten)",
                                result["peak_before_rewrite_bytes"].get<std::int64_t>(),
                                result["rewritten"].get<std::int64_t>(),
                                result["rewrite_candidates"].get<std::int64_t>()));
    console.print(fmt::format(
        "  {:<13}  {:>14} bytes  ({:.2f} % of program order)", algorithm_, solved.peak_bytes,
        program_peak == 0
            ? 100.0
            : 100.0 * static_cast<double>(solved.peak_bytes) / static_cast<double>(program_peak)));
    console.print(fmt::format(
        "  lower bound    {:>14} bytes  {}", solved.lower_bound_bytes,
        solved.proved()
            ? fmt::format("proved optimal ({})", order::bound_proof_name(solved.proof))
            : fmt::format("gap {:.3f} %, not proved",
                          100.0 *
                              static_cast<double>(solved.peak_bytes - solved.lower_bound_bytes) /
                              static_cast<double>(std::max<std::int64_t>(1, solved.peak_bytes)))));
    if (solved.pinned_by.bytes > 0)
      console.print(fmt::format("  pinned by {}: {} bytes in {} tensors that no order separates",
                                op_name(graph, solved.pinned_by.op), solved.pinned_by.bytes,
                                solved.pinned_by.storages.size()));
    if (solved.ilp_variables > 0)
      console.print(fmt::format("  integer program: {} variables, {} after pruning",
                                solved.ilp_variables, solved.ilp_variables_pruned));
    if (!solved.note.empty()) console.print("  " + solved.note);
    console.print(fmt::format("  {:.3f} s, {} states", solved.seconds, solved.states));
  }

  void check_budget(const Graph& graph, const OrderResult& solved, const SizeSpec& spec,
                    std::int64_t program_peak) const {
    if (spec.kind == SizeSpec::Kind::kNone || spec.kind == SizeSpec::Kind::kMinimum) return;
    const std::int64_t budget = spec.resolve(program_peak, 0);
    if (solved.peak_bytes <= budget) return;
    throw InfeasibleBudget(
        budget, solved.peak_bytes,
        fmt::format("{}{}", op_name(graph, solved.pinned_by.op),
                    solved.proved() ? "" : " (the best order found, not proved optimal)"));
  }

  GraphArgument graph_;
  std::string algorithm_ = "search";
  std::vector<std::string> no_fusion_;
  double time_limit_ = 60;
  std::string budget_;
  std::string order_out_, graph_out_, certificate_, svg_, html_, dot_;
  bool rewrite_ = false;
  bool exact_only_ = false;
  bool require_proof_ = false;
};

}  // namespace

std::unique_ptr<Command> make_schedule_command() { return std::make_unique<ScheduleCommand>(); }

}  // namespace plimsoll::cli
