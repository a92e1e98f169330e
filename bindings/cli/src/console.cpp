// SPDX-License-Identifier: Apache-2.0
#include "console.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_interrupt(int) {
  g_interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

Console::Console(const Options& options)
    : options_(options),
      show_progress_(!options.quiet && (options.force_progress || ::isatty(STDERR_FILENO) == 1)) {}

void Console::print(std::string_view line) {
  if (options_.quiet) return;
  end_progress();
  std::FILE* out = options_.json_on_stdout ? stderr : stdout;
  fmt::print(out, "{}\n", line);
  std::fflush(out);
}

void Console::warn(std::string_view line) {
  end_progress();
  fmt::print(stderr, "{}\n", line);
}

void Console::progress(std::string_view what, std::int64_t done, std::int64_t total,
                       std::string_view detail) {
  if (!show_progress_) return;
  const auto now = std::chrono::steady_clock::now();
  if (line_stands_ && done != total && now - last_progress_ < std::chrono::milliseconds(100))
    return;
  last_progress_ = now;
  line_stands_ = true;
  const std::int64_t filled = total > 0 ? 24 * done / total : 0;
  fmt::print(stderr, "\r\033[K{} [{:<24}] {}/{} {}", what,
             std::string(static_cast<std::size_t>(filled), '#'), done, total, detail);
  std::fflush(stderr);
}

void Console::end_progress() {
  if (!line_stands_) return;
  line_stands_ = false;
  fmt::print(stderr, "\n");
}

bool Console::interrupted() noexcept { return g_interrupted != 0; }

void Console::throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

void Console::take_signals() {
  std::signal(SIGINT, on_interrupt);
  // Beyond the system's limit on the size of a file, a write then fails like any other.
  std::signal(SIGXFSZ, SIG_IGN);
}

void write_file(const std::filesystem::path& path, std::string_view text, std::string_view flag) {
  OutputFile file(path, flag);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace plimsoll::cli
