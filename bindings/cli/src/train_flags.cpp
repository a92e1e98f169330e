// SPDX-License-Identifier: Apache-2.0
#include "train_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/nearest_name.h"
#include "plimsoll/base/output_file.h"
#include "plimsoll/models/spec.h"
#include "plimsoll/pool/file_tier.h"

#include "level_names.h"

namespace plimsoll::cli {
namespace {

using Words = std::span<const char* const>;

bool is_one_of(const std::string& word, Words words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "a, b or c"
std::string choice_of(Words words) {
  std::string text = words.front();
  for (std::size_t i = 1; i < words.size(); ++i)
    text += std::string(i + 1 < words.size() ? ", " : " or ") + words[i];
  return text;
}

[[noreturn]] void refuse_word(const std::string& flag, const std::string& value, Words words) {
  throw InvalidArgument(fmt::format("{}: '{}' is unknown, the nearest is '{}'; write {}", flag,
                                    value, nearest_name(value, {words.begin(), words.end()}),
                                    choice_of(words)));
}

TrainLevel parse_level(const TrainFlags& flags, const SizeSpec& budget) {
  if (flags.level == "auto")
    return budget.kind == SizeSpec::Kind::kNone ? TrainLevel::kAllocator : TrainLevel::kEager;
  if (flags.level == "allocator") return TrainLevel::kAllocator;
  if (flags.level == "eager") return TrainLevel::kEager;
  if (is_one_of(flags.level, kLaterLevels)) {
    throw InvalidArgument(
        fmt::format("--level: '{}' comes later; there are auto, allocator and eager", flags.level));
  }
  refuse_word("--level", flags.level, kLevels);
}

EvictionOrder parse_policy(const TrainFlags& flags) {
  if (flags.policy == "auto" || flags.policy == "offload-only") return EvictionOrder::kNextUse;
  if (flags.policy == "lru") return EvictionOrder::kLeastRecentlyUsed;
  if (is_one_of(flags.policy, kLaterPolicies)) {
    throw InvalidArgument(fmt::format(
        "--policy: '{}' comes later, with the planned levels; there are auto, offload-only and lru",
        flags.policy));
  }
  refuse_word("--policy", flags.policy, kPolicies);
}

constexpr std::array kOptimizers = {"sgd", "adam", "adamw"};

train::OptimizerKind parse_optimizer(const std::string& name) {
  if (name == "sgd") return train::OptimizerKind::kSgd;
  if (name == "adam") return train::OptimizerKind::kAdam;
  if (name == "adamw") return train::OptimizerKind::kAdamW;
  refuse_word("--optimizer", name, kOptimizers);
}

// A flag that would do nothing is refused, not passed over.
void check_flags_of_eager(const TrainFlags& flags, TrainLevel level) {
  if (level == TrainLevel::kEager) return;
  const std::string policy = flags.policy == "auto" ? "" : flags.policy;
  for (const auto& [flag, value] :
       {std::pair("--host-limit", flags.host_limit), std::pair("--spill", flags.spill),
        std::pair("--trace", flags.trace), std::pair("--policy", policy)}) {
    if (value.empty()) continue;
    throw InvalidArgument(
        fmt::format("{}: '{}' is for level eager, which moves tensors; write --level eager, or "
                    "leave {} out",
                    flag, value, flag));
  }
}

// What is read from a pipe is gone, and stock needs it too.
void check_resume(const TrainFlags& flags) {
  if (flags.resume.empty() || !flags.against_stock || !is_read_once(flags.resume)) return;
  throw InvalidArgument(fmt::format(
      "--resume: '{}' can be read only once, --against-stock needs it twice; name a regular file",
      flags.resume));
}

void check_files(const TrainFlags& flags) {
  if (!flags.save.empty()) check_writable(flags.save, "--save");
  if (!flags.report.empty()) check_writable(flags.report, "--report");
  if (!flags.trace.empty()) check_writable(flags.trace, "--trace");
  if (flags.spill.empty()) return;
  if (!std::filesystem::is_directory(flags.spill))
    throw InvalidArgument(fmt::format("--spill: '{}' is no folder", flags.spill));
  try {
    pool::FileTierOptions file;
    file.folder = flags.spill;
    const pool::FileTier probe(file);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("--spill: {}", error.what()));
  }
}

// The number that a flag was given, of which `is_right` holds, or `absent`.
template <typename Number, typename Claim>
Number parse_number(const char* flag, const std::string& text, Number absent, const char* right,
                    const Claim& is_right) {
  if (text.empty()) return absent;
  Number number{};
  const char* last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data(), last, number);
  if (status != std::errc() || end != last || !is_right(number))
    throw InvalidArgument(fmt::format("{}: '{}' must be {}", flag, text, right));
  return number;
}

void parse_numbers(const TrainFlags& flags, TrainPlan& plan) {
  const auto whole = [](const char* flag, const std::string& text, std::int64_t absent,
                        std::int64_t most) {
    const std::string right = fmt::format("a whole number from 1 to {}", most);
    return parse_number(flag, text, absent, right.c_str(),
                        [most](std::int64_t number) { return number >= 1 && number <= most; });
  };
  plan.options.batch = whole("--batch", flags.batch, plan.options.batch, 1 << 20);
  plan.steps = whole("--steps", flags.steps, plan.steps, 1000000000);
  plan.epochs = whole("--epochs", flags.epochs, plan.epochs, 1000000);
  plan.threads = static_cast<int>(whole("--threads", flags.threads, plan.threads, 1024));
  plan.options.learning_rate = parse_number(
      "--lr", flags.learning_rate, plan.options.learning_rate, "a number above 0 and at most 1000",
      [](double number) { return number > 0 && number <= 1000; });
  plan.options.seed = parse_number("--seed", flags.seed, plan.options.seed,
                                   "a whole number from 0 to 18446744073709551615",
                                   [](std::uint64_t) { return true; });
}

}  // namespace

bool is_read_once(const std::filesystem::path& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  return type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::character;
}

void TrainFlags::declare(CLI::App& app) {
  app.add_option("model", model, "name[:key=value,...]; `plimsoll models` lists them")
      ->required()
      ->type_name("MODEL");
  app.add_option(
         "--budget", budget,
         "Device memory: a size, a share of stock's peak (33%, or 33%a above what persists), "
         "min or none")
      ->type_name("SIZE");
  app.add_option("--level", level,
                 "auto, allocator (a hard limit) or eager (moves to host memory)");
  app.add_option("--policy", policy, "auto, offload-only or lru");
  app.add_option("--data", data, "fashion-mnist, synthetic or a folder with IDX or CIFAR-10 files");
  app.add_option("--batch", batch, "Samples a step")->type_name("N");
  CLI::Option* steps_option =
      app.add_option("--steps", steps, "Steps to train (20 where neither is given)")
          ->type_name("N");
  app.add_option("--epochs", epochs, "Passes over the data to train, then evaluate")
      ->type_name("N")
      ->excludes(steps_option);
  app.add_option("--optimizer", optimizer, "sgd (momentum 0.9), adam or adamw");
  app.add_option("--lr", learning_rate, "Learning rate (0.05 for sgd, 0.001 for the others)")
      ->type_name("X");
  app.add_option("--autocast", autocast, "bf16: mixed precision");
  app.add_option("--seed", seed, "Seed of weights, dropout and the data's order")->type_name("N");
  app.add_option("--threads", threads, "Operator threads (LibTorch's default where absent)")
      ->type_name("N");
  app.add_option("--host-limit", host_limit, "What evicted tensors may take of host memory")
      ->type_name("SIZE");
  app.add_option("--spill", spill, "A folder for what exceeds the host limit")->type_name("DIR");
  app.add_flag("--against-stock", against_stock,
               "Also run stock LibTorch, steps interleaved, and compare every bit (time_ratio is "
               "against stock on a heap whose bytes are counted)");
  app.add_flag("--evaluate", evaluate, "Name the accuracy on the test set after training");
  app.add_option("--save", save, "Save the run at its end")->type_name("FILE");
  app.add_option("--resume", resume, "Take up a saved run, bit for bit")->type_name("RUN");
  app.add_option("--report", report, "Write a page with curves")->type_name("FILE.html");
  app.add_option("--trace", trace, "Write the last step as a Chrome trace (level eager)")
      ->type_name("FILE.json");
}

TrainPlan check_train_flags(const TrainFlags& flags) {
  TrainPlan plan;
  plan.options.model = flags.model;
  models::parse_model(flags.model);
  plan.budget = parse_size_spec(flags.budget, "--budget");
  plan.level = parse_level(flags, plan.budget);
  parse_numbers(flags, plan);
  plan.options.optimizer = parse_optimizer(flags.optimizer);
  if (!flags.autocast.empty() && flags.autocast != "bf16")
    throw InvalidArgument(fmt::format("--autocast: '{}' must be bf16", flags.autocast));
  plan.options.autocast_bf16 = !flags.autocast.empty();
  plan.session.eviction_order = parse_policy(flags);
  if (!flags.host_limit.empty())
    plan.session.host_limit_bytes = parse_size(flags.host_limit, "--host-limit");
  plan.session.spill_folder = flags.spill;
  plan.session.record_events = !flags.trace.empty();
  check_flags_of_eager(flags, plan.level);
  check_resume(flags);
  check_files(flags);
  return plan;
}

}  // namespace plimsoll::cli
