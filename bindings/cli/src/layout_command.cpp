// SPDX-License-Identifier: Apache-2.0
#include "layout_command.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/size.h"
#include "plimsoll/plan/layout.h"
#include "plimsoll/plan/layout_io.h"
#include "plimsoll/plan/layout_validate.h"

namespace plimsoll::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::pair<std::string_view, plan::LayoutAlgorithm>, 4> kAlgorithms = {
    {{"auto", plan::LayoutAlgorithm::kAuto},
     {"greedy", plan::LayoutAlgorithm::kGreedy},
     {"search", plan::LayoutAlgorithm::kSearch},
     {"local", plan::LayoutAlgorithm::kLocal}}};

std::string name_of(const plan::LayoutProblem& problem, std::size_t index) {
  return index < problem.names.size() ? problem.names[index] : fmt::format("{}", index);
}

// Why an arena cannot be smaller: the moment of its load and the largest that live then.
std::string pinned_by(const plan::LayoutProblem& problem, std::int32_t arena) {
  const plan::LayoutPeak peak = plan::find_layout_peak(problem, arena);
  std::string text = fmt::format("the {} buffers live at time {}, {} bytes", peak.buffers.size(),
                                 peak.time, peak.load_bytes);
  for (std::size_t k = 0; k < peak.buffers.size() && k < 3; ++k) {
    const std::size_t i = peak.buffers[k];
    text += fmt::format("{} '{}' ({} bytes)", k == 0 ? ", among them" : ",", name_of(problem, i),
                        problem.buffers[i].size_bytes);
  }
  return text;
}

class LayoutCommand final : public Command {
 public:
  std::string name() const override { return "layout"; }
  std::string summary() const override {
    return "Addresses for buffers whose lifetimes are known, and how far from optimal";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll layout tests/data/layout/toy.csv --capacity 12 --out placed.csv",
            "plimsoll layout tests/data/layout/toy.csv --svg layout.svg --json -"};
  }
  void declare(CLI::App& app) override {
    app.add_option("FILE", file_, "CSV (id,lower,upper,size[,...]) or JSON")
        ->required()
        ->type_name("");
    app.add_option("--capacity", capacity_, "The arena must not be larger; stops once it fits")
        ->type_name("SIZE");
    app.add_option("--align", align_, "Round sizes and offsets up to a multiple of SIZE")
        ->type_name("SIZE");
    app.add_option("--algorithm", algorithm_, "auto, greedy, search or local")
        ->capture_default_str()
        ->type_name("NAME");
    app.add_option("--time-limit", time_limit_, "Seconds; the result says where this ended it")
        ->capture_default_str()
        ->type_name("S");
    app.add_option("--node-limit", node_limit_, "Nodes of the exact search; repeats exactly")
        ->capture_default_str()
        ->type_name("N");
    app.add_option("--seed", seed_, "Of the search's shuffles")->capture_default_str();
    app.add_flag("--minimize", minimize_, "Go on below a capacity that is met");
    app.add_option("--out", out_, "Write the layout; JSON where FILE ends in .json, else CSV")
        ->type_name("FILE");
    app.add_option("--svg", svg_, "Draw time x address with the peak marked")->type_name("FILE");
  }

  ExitCode run(Console& console, Json& result) override {
    result["seed"] = seed_;
    const plan::LayoutOptions options = solver_options();
    if (!out_.empty()) check_writable(out_, "--out");
    if (!svg_.empty()) check_writable(svg_, "--svg");
    const plan::LayoutProblem problem = read_problem();
    const Clock::time_point start = Clock::now();
    const std::clock_t cpu_start = std::clock();
    plan::LayoutOptions timed = options;
    timed.should_stop = [&] {
      return Console::interrupted() ||
             std::chrono::duration<double>(Clock::now() - start).count() > time_limit_;
    };
    const plan::LayoutResult solved = plan::solve_layout(problem, timed);
    Console::throw_if_interrupted();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    result["cpu_seconds"] = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    check(problem, solved);
    describe(problem, solved, seconds, result);
    if (solved.status == plan::LayoutStatus::kInfeasible) refuse(problem, solved);
    write_files(problem, solved);
    print(console, problem, solved, seconds);
    return solved.status == plan::LayoutStatus::kUnknown ? kCheckFailed : kDone;
  }

 private:
  plan::LayoutOptions solver_options() const {
    plan::LayoutOptions options;
    bool is_known = false;
    for (const auto& [name, algorithm] : kAlgorithms) {
      if (name != algorithm_) continue;
      options.algorithm = algorithm;
      is_known = true;
    }
    if (!is_known)
      throw InvalidArgument(fmt::format(
          "--algorithm: '{}' is unknown; there are auto, greedy, search, local", algorithm_));
    if (!(time_limit_ >= 0))
      throw InvalidArgument(
          fmt::format("--time-limit: {} has to be 0 or more seconds", time_limit_));
    if (node_limit_ < 0)
      throw InvalidArgument(fmt::format("--node-limit: {} has to be 0 or more", node_limit_));
    options.minimize = minimize_;
    options.seed = seed_;
    options.node_limit = node_limit_;
    return options;
  }

  plan::LayoutProblem read_problem() const {
    const std::int64_t capacity = capacity_.empty() ? 0 : parse_size(capacity_, "--capacity");
    const std::int64_t alignment = align_.empty() ? 1 : parse_size(align_, "--align");
    plan::LayoutProblem problem = plan::read_layout(file_);
    if (capacity > 0) {
      for (plan::LayoutArena& arena : problem.arenas) arena.capacity_bytes = capacity;
    }
    return alignment > 1 ? plan::align_layout_problem(std::move(problem), alignment) : problem;
  }

  // No layout leaves the program unchecked.
  static void check(const plan::LayoutProblem& problem, const plan::LayoutResult& solved) {
    if (solved.offsets_bytes.empty() && !problem.buffers.empty()) return;
    plan::LayoutProblem open = problem;
    const bool fits = solved.status == plan::LayoutStatus::kOptimal ||
                      solved.status == plan::LayoutStatus::kFeasible;
    for (plan::LayoutArena& arena : open.arenas) {
      if (!fits) arena.capacity_bytes = plan::kUnlimitedBytes;
    }
    const auto violation = plan::validate_layout_sweep(open, solved.offsets_bytes);
    PLIMSOLL_CHECK(!violation.has_value(), violation.has_value() ? violation->message : "");
  }

  static void describe(const plan::LayoutProblem& problem, const plan::LayoutResult& solved,
                       double seconds, Json& result) {
    const std::int64_t load = solved.load_bytes();
    const double waste =
        load > 0 ? static_cast<double>(solved.arena_bytes() - load) / static_cast<double>(load)
                 : 0.0;
    result["buffers"] = problem.buffers.size();
    result["load_bytes"] = load;
    result["lower_bound_bytes"] = solved.lower_bound_bytes();
    result["arena_bytes"] = solved.arena_bytes();
    result["status"] = plan::layout_status_name(solved.status);
    result["waste_ratio"] = waste;
    result["seconds"] = seconds;
    result["nodes"] = solved.nodes;
    result["repackings"] = solved.moves;
    result["method"] = solved.method;
    result["time_limit_reached"] = solved.was_stopped;
    result["node_limit_reached"] = solved.limit_reached;
    if (solved.arenas.size() < 2) return;
    for (std::size_t a = 0; a < solved.arenas.size(); ++a) {
      const plan::LayoutArenaResult& arena = solved.arenas[a];
      result["arenas"].push_back({{"name", problem.arenas[a].name},
                                  {"load_bytes", arena.load_bytes},
                                  {"lower_bound_bytes", arena.lower_bound_bytes},
                                  {"arena_bytes", arena.arena_bytes},
                                  {"status", plan::layout_status_name(arena.status)}});
    }
  }

  [[noreturn]] static void refuse(const plan::LayoutProblem& problem,
                                  const plan::LayoutResult& solved) {
    if (solved.offsets_bytes.empty())
      throw InvalidArgument("FILE: fixed offsets and reserved ranges contradict one another");
    std::size_t a = 0;
    while (solved.arenas[a].status != plan::LayoutStatus::kInfeasible) ++a;
    throw InfeasibleBudget(problem.arenas[a].capacity_bytes, solved.arenas[a].lower_bound_bytes,
                           pinned_by(problem, static_cast<std::int32_t>(a)));
  }

  void write_files(const plan::LayoutProblem& problem, const plan::LayoutResult& solved) const {
    if (!out_.empty()) {
      const bool is_json = out_.ends_with(".json");
      write_file(out_,
                 is_json ? plan::write_layout_json(problem, &solved.offsets_bytes)
                         : plan::write_layout_csv(problem, &solved.offsets_bytes),
                 "--out");
    }
    if (!svg_.empty())
      write_file(svg_, plan::draw_layout_svg(problem, solved.offsets_bytes), "--svg");
  }

  static void print(Console& console, const plan::LayoutProblem& problem,
                    const plan::LayoutResult& solved, double seconds) {
    for (std::size_t a = 0; a < solved.arenas.size(); ++a) {
      const plan::LayoutArenaResult& arena = solved.arenas[a];
      const double waste = arena.load_bytes > 0
                               ? 100.0 * static_cast<double>(arena.arena_bytes - arena.load_bytes) /
                                     static_cast<double>(arena.load_bytes)
                               : 0.0;
      const std::string name = solved.arenas.size() == 1
                                   ? "arena"
                                   : fmt::format("arena {} {}", a, problem.arenas[a].name);
      console.print(fmt::format("{}: {} bytes ({}), {}; load {} bytes, {:.2f} % above it", name,
                                arena.arena_bytes, format_size(arena.arena_bytes),
                                plan::layout_status_name(arena.status), arena.load_bytes, waste));
    }
    console.print(fmt::format("{} buffers, {:.3f} s, {} nodes, {} repackings, by {}{}",
                              problem.buffers.size(), seconds, solved.nodes, solved.moves,
                              solved.method,
                              solved.was_stopped     ? "; ended by the time limit"
                              : solved.limit_reached ? "; ended by a node limit"
                                                     : ""));
  }

  std::string file_;
  std::string capacity_;
  std::string align_;
  std::string algorithm_ = "auto";
  double time_limit_ = 30;
  std::int64_t node_limit_ = plan::LayoutOptions().node_limit;
  std::uint64_t seed_ = 1;
  bool minimize_ = false;
  std::string out_;
  std::string svg_;
};

}  // namespace

std::unique_ptr<Command> make_layout_command() { return std::make_unique<LayoutCommand>(); }

}  // namespace plimsoll::cli
