// SPDX-License-Identifier: Apache-2.0
#include "explain_command.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/size.h"
#include "plimsoll/explain/explanation.h"
#include "plimsoll/explain/snapshot.h"

#include "command.h"

namespace plimsoll::cli {
namespace {

std::string read_whole_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw InvalidFile(path, "", "is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InvalidFile(path, "", fmt::format("cannot be read: {}", std::strerror(errno)));
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || bytes.empty()) throw InvalidFile(path, "byte 0", "the file is empty");
  return bytes;
}

std::string size_or_zero(std::int64_t bytes) { return bytes == 0 ? "0" : format_size(bytes); }

class ExplainCommand : public Command {
 public:
  std::string name() const override { return "explain"; }
  std::string summary() const override {
    return "Says what a PyTorch memory snapshot holds, and what a static plan would save";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll explain snapshot.pickle --html report.html",
            "plimsoll explain snapshot.pickle --device 0 --save-plan plan.csv --json -"};
  }
  void declare(CLI::App& app) override {
    app.add_option("SNAPSHOT", snapshot_, "File written by torch.cuda.memory._dump_snapshot")
        ->required();
    app.add_option("--html", html_, "Write a report with timeline and plan to FILE")
        ->type_name("FILE");
    app.add_option("--save-plan", plan_, "Write the static plan (CSV with offsets) to FILE")
        ->type_name("FILE");
    app.add_option("--save-snapshot", planned_,
                   "Write the run as it would be under the plan, for the memory viewer, to FILE")
        ->type_name("FILE");
    app.add_option("--device", device_, "The device to explain (default: the one with most)")
        ->check(CLI::Range(0, 1 << 20));
    app.add_option("--align", align_, "Alignment of the plan's blocks (default: 512)");
    app.add_option("--top", top_, "How many stacks to list (default: 10)")
        ->check(CLI::Range(0, 100000));
  }

  ExitCode run(Console& console, Json& result) override {
    explain::ExplainOptions options;
    options.device = device_;
    options.alignment_bytes = parse_size(align_, "--align");
    if ((options.alignment_bytes & (options.alignment_bytes - 1)) != 0)
      throw InvalidArgument(fmt::format("--align: '{}' is no power of two", align_));
    for (const auto& [path, flag] : {std::pair{&html_, "--html"}, std::pair{&plan_, "--save-plan"},
                                     std::pair{&planned_, "--save-snapshot"}})
      if (!path->empty()) check_writable(*path, flag);
    const std::string bytes = read_whole_file(snapshot_);
    const explain::Snapshot snapshot = explain::read_snapshot(bytes, snapshot_);
    Console::throw_if_interrupted();
    const explain::Explanation explanation = explain::explain(snapshot, options);
    fill(snapshot, explanation, result);
    print(snapshot, explanation, console);
    if (!html_.empty())
      write_file(html_, explain::explanation_html(snapshot, explanation, snapshot_), "--html");
    if (!plan_.empty())
      write_file(plan_, explain::plan_csv(explanation, options.alignment_bytes), "--save-plan");
    if (!planned_.empty())
      write_file(planned_,
                 explain::write_snapshot(explain::planned_snapshot(snapshot, explanation)),
                 "--save-snapshot");
    return kDone;
  }

 private:
  void fill(const explain::Snapshot& snapshot, const explain::Explanation& e, Json& result) const {
    result["device"] = e.device;
    result["events"] = e.events;
    result["blocks"] = e.lives.size();
    result["truncated"] = e.is_truncated;
    result["peak_event"] = e.peak_event;
    result["peak_allocated_bytes"] = e.peak_allocated_bytes;
    result["peak_reserved_bytes"] = e.peak_reserved_bytes;
    result["fragmentation_bytes"] = e.fragmentation_bytes;
    result["load_bytes"] = e.load_bytes;
    result["planned_arena_bytes"] = e.planned_arena_bytes;
    result["segments"] = Json::array();
    for (const explain::SegmentAtPeak& segment : e.segments)
      result["segments"].push_back({{"address", segment.addresses.begin},
                                    {"size_bytes", segment.addresses.length()},
                                    {"allocated_bytes", segment.allocated_bytes},
                                    {"free_bytes", segment.free_bytes()},
                                    {"largest_hole_bytes", segment.largest_hole_bytes}});
    result["top"] = Json::array();
    for (std::size_t i = 0; i < std::min(e.stacks.size(), static_cast<std::size_t>(top_)); ++i)
      result["top"].push_back({{"frames", printable_stack(snapshot, e.stacks[i].stack)},
                               {"bytes", e.stacks[i].bytes},
                               {"blocks", e.stacks[i].blocks}});
  }
  void print(const explain::Snapshot& snapshot, const explain::Explanation& e,
             Console& console) const {
    console.print(fmt::format("device {}: {} events, {} blocks{}", e.device, e.events,
                              e.lives.size(),
                              e.is_truncated ? " (the trace has lost its beginning)" : ""));
    const auto line = [&](const char* what, std::int64_t bytes) {
      console.print(fmt::format("  {:<42}{:>16}  {}", what, bytes, size_or_zero(bytes)));
    };
    line("most allocated at one time", e.peak_allocated_bytes);
    line("most reserved at one time", e.peak_reserved_bytes);
    line("free inside segments at the peak", e.fragmentation_bytes);
    line("least that this order needs", e.load_bytes);
    line("a static plan needs", e.planned_arena_bytes);
    console.print(fmt::format("  {} segments at the peak; who holds it:", e.segments.size()));
    for (std::size_t i = 0; i < std::min(e.stacks.size(), static_cast<std::size_t>(top_)); ++i) {
      const auto frames = printable_stack(snapshot, e.stacks[i].stack);
      console.print(fmt::format("  {:>12} in {:>5} blocks  {}", size_or_zero(e.stacks[i].bytes),
                                e.stacks[i].blocks, frames.empty() ? "not recorded" : frames[0]));
    }
  }
  // Texts of a file may hold any bytes; JSON and terminals take printable ones.
  static std::vector<std::string> printable_stack(const explain::Snapshot& snapshot,
                                                  std::int32_t stack) {
    std::vector<std::string> lines = explain::format_stack(snapshot, stack);
    for (std::string& line : lines) {
      for (char& c : line)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
      // Replaces what is no UTF-8.
      line = Json::parse(Json(line).dump(-1, ' ', false, Json::error_handler_t::replace))
                 .get<std::string>();
    }
    return lines;
  }

  std::string snapshot_;
  std::string html_;
  std::string plan_;
  std::string planned_;
  std::string align_ = "512";
  int device_ = -1;
  int top_ = 10;
};

}  // namespace

std::unique_ptr<Command> make_explain_command() { return std::make_unique<ExplainCommand>(); }

}  // namespace plimsoll::cli
