// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/allocator.h"
#include "plimsoll/base/error.h"
#include "plimsoll/train/checkpoint.h"

#include "torch_commands.h"
#include "train_flags.h"
#include "train_page.h"
#include "train_run.h"

namespace plimsoll::cli {
namespace {

std::string level_name(TrainLevel level) {
  return level == TrainLevel::kEager ? "eager" : "allocator";
}

// A loss that JSON can hold: not-a-number and infinity become null.
Json losses_json(const std::vector<float>& losses) {
  Json list = Json::array();
  for (const float loss : losses) list.push_back(std::isfinite(loss) ? Json(loss) : Json());
  return list;
}

std::int64_t resident_process_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;  // the second number
  return file ? pages * sysconf(_SC_PAGESIZE) : 0;
}

// What the budget does not bound. The last is what no allocator sees: code, stacks, the data set,
// and what oneDNN, MKL and OpenMP keep for themselves.
Json outside_json(const SessionReport& report, bool is_in_arena) {
  const std::int64_t heap = allocator_statistics().live_bytes;
  const std::int64_t arena = is_in_arena ? report.peak_bytes : 0;
  const std::int64_t known = heap + arena + report.host_bytes;
  return {{"host_tier_bytes", report.host_bytes},
          {"file_tier_bytes", report.file_bytes},
          {"libtorch_heap_bytes", heap},
          {"rest_of_process_bytes", std::max<std::int64_t>(0, resident_process_bytes() - known)}};
}

// Who writes --budget 33 may have meant a share; "" where that cannot be.
std::string budget_hint(const std::string& budget) {
  if (budget.empty() || budget.find_first_not_of("0123456789") != std::string::npos) return "";
  if (budget.size() > 3 || std::stoi(budget) > 100) return "";
  return fmt::format("{} is bytes; for a share of stock's peak write {}%", budget, budget);
}

class TrainCommand : public Command {
 public:
  explicit TrainCommand(TestingAfterStep testing_after_step)
      : testing_after_step_(std::move(testing_after_step)) {}
  std::string name() const override { return "train"; }
  std::string summary() const override { return "Trains a model inside a memory budget"; }
  std::vector<std::string> examples() const override {
    return {"plimsoll train resnet:stages=2-2-2-2 --budget 40% --steps 10 --against-stock",
            "plimsoll train mlp --data fashion-mnist --epochs 1 --json -"};
  }
  void declare(CLI::App& app) override { flags_.declare(app); }
  ExitCode run(Console& console, Json& result) override;

 private:
  struct Budget {
    std::int64_t bytes = 0;  // 0: no limit
    std::optional<train::StockMeasure> stock;
  };

  ExitCode run_training(Console& console, Json& result) const;
  train::Data open_data(data::Split split) const;
  Budget resolve_budget(const TrainPlan& plan, const train::Data& data, Console& console) const;
  // Called while the shortage is being handled; throws what the user is told.
  [[noreturn]] void refuse_budget(const TrainPlan& plan, const train::Data& data, Budget budget,
                                  Console& console, Json& result) const;
  void train_steps(const TrainPlan& plan, TrainRun& run, TrainRecord& record,
                   Console& console) const;
  void describe(const TrainPlan& plan, TrainRun& run, const Budget& budget,
                const TrainRecord& record, Json& result) const;
  void write_files(TrainRun& run, const Budget& budget, const TrainRecord& record,
                   const Json& result) const;
  void print_summary(const TrainRecord& record, const Json& result, Console& console) const;

  TrainFlags flags_;
  TestingAfterStep testing_after_step_;
};

train::Data TrainCommand::open_data(data::Split split) const {
  const models::Settings settings = models::parse_model(flags_.model);
  return data::open_dataset(flags_.data, split,
                            std::min<std::int64_t>(10, settings.integer("classes")));
}

TrainCommand::Budget TrainCommand::resolve_budget(const TrainPlan& plan, const train::Data& data,
                                                  Console& console) const {
  Budget budget;
  const auto kind = plan.budget.kind;
  const bool needs_stock = plan.budget.needs_stock_peak() || flags_.against_stock ||
                           kind == SizeSpec::Kind::kMinimum ||
                           (kind == SizeSpec::Kind::kNone && plan.level == TrainLevel::kEager);
  if (needs_stock) {
    console.progress("measure stock", 0, 1);
    budget.stock = train::measure_stock(plan.options, data, Console::throw_if_interrupted);
  }
  if (kind == SizeSpec::Kind::kBytes) {
    budget.bytes = plan.budget.bytes;
  } else if (kind == SizeSpec::Kind::kMinimum && plan.level == TrainLevel::kAllocator) {
    budget.bytes = budget.stock->peak_bytes;
  } else if (kind == SizeSpec::Kind::kMinimum) {
    console.progress("search the least budget", 0, 1);
    budget.bytes =
        train::find_minimum_budget(plan.options, data, plan.session, budget.stock->peak_bytes,
                                   Console::throw_if_interrupted)
            .budget_bytes;
  } else if (kind != SizeSpec::Kind::kNone || plan.level == TrainLevel::kEager) {
    budget.bytes = plan.budget.resolve(budget.stock->peak_bytes, budget.stock->persistent_bytes);
  }
  return budget;
}

void TrainCommand::refuse_budget(const TrainPlan& plan, const train::Data& data, Budget budget,
                                 Console& console, Json& result) const {
  if (const std::string hint = budget_hint(flags_.budget); !hint.empty()) result["hint"] = hint;
  console.progress("search the least budget", 0, 1);
  if (!budget.stock)
    budget.stock = train::measure_stock(plan.options, data, Console::throw_if_interrupted);
  result["stock_peak_bytes"] = budget.stock->peak_bytes;
  if (plan.level == TrainLevel::kAllocator) {
    result["peak_op"] = budget.stock->peak_op;
    result["peak_op_bytes"] = budget.stock->peak_op_bytes;
    const std::string& peak_op = budget.stock->peak_op;
    // The first step of a process needs a little more than the peak of those after it.
    throw InfeasibleBudget(budget.bytes, std::max(budget.stock->peak_bytes, budget.bytes + 64),
                           fmt::format("{} (allocates {} bytes at the step's peak)",
                                       peak_op.empty() ? "a call between operators" : peak_op,
                                       budget.stock->peak_op_bytes));
  }
  const train::MinimumBudget minimum = train::find_minimum_budget(
      plan.options, data, plan.session, budget.stock->peak_bytes, Console::throw_if_interrupted);
  // A budget the search finds enough and the run did not is a fault of ours: show the cause.
  if (minimum.budget_bytes <= budget.bytes) throw;
  result["lower_bound_bytes"] = minimum.lower_bound_bytes;
  throw InfeasibleBudget(
      budget.bytes, minimum.budget_bytes,
      fmt::format("{} ({} bytes)", minimum.pinned_by, minimum.lower_bound_bytes));
}

void TrainCommand::train_steps(const TrainPlan& plan, TrainRun& run, TrainRecord& record,
                               Console& console) const {
  const std::int64_t steps =
      plan.epochs > 0 ? plan.epochs * run.trainer().steps_per_epoch() : plan.steps;
  for (std::int64_t step = 0; step < steps; ++step) {
    Console::throw_if_interrupted();
    run.step(record);
    if (testing_after_step_) testing_after_step_(step + 1, run.trainer());
    std::string detail = fmt::format("loss {:.4f}", record.losses.back());
    if (!record.moved_bytes.empty()) {
      detail +=
          fmt::format("  peak {}  moved {}", format_size(record.report.peak_bytes),
                      record.moved_bytes.back() > 0 ? format_size(record.moved_bytes.back()) : "0");
    }
    console.progress("train", step + 1, steps, detail);
  }
  run.finish(record);
}

void TrainCommand::describe(const TrainPlan& plan, TrainRun& run, const Budget& budget,
                            const TrainRecord& record, Json& result) const {
  const SessionReport& report = record.report;
  result["model"] = run.trainer().canonical_model();
  result["parameters"] = models::parameter_count(run.trainer().model());
  result["data"] = flags_.data;
  result["optimizer"] = flags_.optimizer;
  result["batch"] = plan.options.batch;
  result["steps"] = record.losses.size();
  result["level"] = level_name(plan.level);
  result["policy"] = flags_.policy;
  result["budget_bytes"] = budget.bytes > 0 ? Json(budget.bytes) : Json();
  result["peak_bytes"] = report.peak_bytes;
  result["peak_op"] = report.peak_op;
  result["persistent_bytes"] = report.persistent_bytes;
  result["lower_bound_bytes"] = report.lower_bound_bytes;
  result["pinned_by"] = report.pinned_by;
  result["offloaded_bytes"] = report.offloaded_bytes;
  result["prefetched_bytes"] = report.prefetched_bytes;
  result["moved_lower_bound_bytes"] = record.moved_lower_bound_bytes;
  result["host_bytes"] = report.host_bytes;
  result["file_bytes"] = report.file_bytes;
  result["outside"] = outside_json(report, plan.level == TrainLevel::kEager);
  result["recomputed_ops"] = 0;
  result["losses"] = losses_json(record.losses);
  result["accuracy"] = nullptr;
  result["step_seconds"] = median(record.seconds);
  if (budget.stock) result["stock_peak_bytes"] = budget.stock->peak_bytes;
  if (!flags_.against_stock) return;
  result["identical"] = record.first_difference.empty();
  result["first_difference"] =
      record.first_difference.empty() ? Json() : Json(record.first_difference);
  // The first two steps learn the sequence of accesses; they count where there is nothing else.
  const std::size_t warm = record.seconds.size() > 2 ? 2 : 0;
  std::vector<double> ratios;
  for (std::size_t i = warm; i < record.seconds.size(); ++i)
    ratios.push_back(record.seconds[i] / record.stock_seconds[i]);
  result["stock_step_seconds"] = median(record.stock_seconds);
  result["time_ratio"] = median(ratios);
}

void TrainCommand::write_files(TrainRun& run, const Budget& budget, const TrainRecord& record,
                               const Json& result) const {
  if (!flags_.save.empty()) train::save_run(run.trainer(), flags_.data, flags_.save);
  if (!flags_.trace.empty()) write_file(flags_.trace, chrome_trace(run.events()), "--trace");
  if (flags_.report.empty()) return;
  TrainPage page;
  page.losses.assign(record.losses.begin(), record.losses.end());
  page.stock_losses.assign(record.stock_losses.begin(), record.stock_losses.end());
  page.moved_bytes.assign(record.moved_bytes.begin(), record.moved_bytes.end());
  page.peak_bytes = record.report.peak_bytes;
  page.budget_bytes = budget.bytes;
  if (budget.stock) page.stock_peak_bytes = budget.stock->peak_bytes;
  write_file(flags_.report, train_page_html(page, result), "--report");
}

void TrainCommand::print_summary(const TrainRecord& record, const Json& result,
                                 Console& console) const {
  console.print(fmt::format("{}: {} steps, loss {:.4f} -> {:.4f}, {:.3f} s a step",
                            result["model"].get<std::string>(), record.losses.size(),
                            record.losses.front(), record.losses.back(),
                            result["step_seconds"].get<double>()));
  std::string memory = fmt::format("peak {}", format_size(record.report.peak_bytes));
  if (result["budget_bytes"].is_number())
    memory += fmt::format(" of {}", format_size(result["budget_bytes"].get<std::int64_t>()));
  if (result.contains("stock_peak_bytes"))
    memory +=
        fmt::format(", stock {}", format_size(result["stock_peak_bytes"].get<std::int64_t>()));
  if (!record.moved_bytes.empty() && record.moved_bytes.back() > 0) {
    memory += fmt::format(", moved {} in the last step", format_size(record.moved_bytes.back()));
  }
  console.print(memory);
  const auto outside = [&](const char* key) {
    return format_size(result["outside"][key].get<std::int64_t>());
  };
  console.print(
      fmt::format("outside of it: host tier {}, files {}, LibTorch's heap {}, the process's own {}",
                  outside("host_tier_bytes"), outside("file_tier_bytes"),
                  outside("libtorch_heap_bytes"), outside("rest_of_process_bytes")));
  if (result["accuracy"].is_number())
    console.print(fmt::format("accuracy {:.4f}", result["accuracy"].get<double>()));
  if (!flags_.against_stock) return;
  console.print(record.first_difference.empty()
                    ? std::string("identical to stock in every bit")
                    : fmt::format("NOT identical to stock: {}", record.first_difference));
  console.print(fmt::format("{:.3f} x stock's time", result["time_ratio"].get<double>()));
}

ExitCode TrainCommand::run_training(Console& console, Json& result) const {
  const TrainPlan plan = check_train_flags(flags_);
  if (plan.threads > 0) at::set_num_threads(plan.threads);
  result["seed"] = plan.options.seed;
  result["threads"] = at::get_num_threads();
  const train::Data data = open_data(data::Split::kTrain);
  const bool evaluates = flags_.evaluate || plan.epochs > 0;
  const train::Data test = evaluates ? open_data(data::Split::kTest) : nullptr;
  // Before the budget, whose search may take long: a run that cannot be taken up is known now.
  if (!flags_.resume.empty() && !is_read_once(flags_.resume)) {
    train::Trainer probe(plan.options, data);
    train::resume_run(probe, flags_.data, flags_.resume);
  }
  Budget budget = resolve_budget(plan, data, console);
  std::optional<TrainRun> run(std::in_place, plan, data, budget.bytes, flags_.against_stock);
  if (!flags_.resume.empty()) run->resume(flags_.data, flags_.resume);
  TrainRecord record;
  try {
    train_steps(plan, *run, record, console);
  } catch (const DeviceOutOfMemory&) {
    run.reset();  // one session at a time, and the search needs the memory
    refuse_budget(plan, data, budget, console, result);
  }
  describe(plan, *run, budget, record, result);
  if (evaluates) result["accuracy"] = run->evaluate(*test, Console::throw_if_interrupted);
  Console::throw_if_interrupted();
  write_files(*run, budget, record, result);
  console.end_progress();
  print_summary(record, result, console);
  return record.first_difference.empty() ? kDone : kCheckFailed;
}

ExitCode TrainCommand::run(Console& console, Json& result) {
  try {
    return run_training(console, result);
  } catch (const c10::OutOfMemoryError& error) {
    throw HostOutOfMemory(error.what_without_backtrace(), {});
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    // LibTorch's CPU allocator has no type of its own for a machine without memory.
    const std::size_t place = text.find("DefaultCPUAllocator: ");
    if (place == std::string::npos) throw InternalError(text);
    throw HostOutOfMemory(
        "this machine's memory is exhausted: " + text.substr(place, text.find('\n', place) - place),
        {});
  }
}

}  // namespace

std::unique_ptr<Command> make_train_command(TestingAfterStep testing_after_step) {
  return std::make_unique<TrainCommand>(std::move(testing_after_step));
}

}  // namespace plimsoll::cli
