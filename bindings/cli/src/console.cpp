// SPDX-License-Identifier: Apache-2.0
#include "console.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_interrupt(int) {
  g_interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

// A temporary in the target's own folder, so that the rename cannot cross file systems.
std::string temporary_beside(const std::filesystem::path& path) {
  return fmt::format("{}.tmp{}", path.string(), ::getpid());
}

[[noreturn]] void refuse_path(const std::filesystem::path& path, std::string_view flag, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    throw HostOutOfMemory(
        fmt::format("{}: the disk is full, '{}' was not written", flag, path.string()), {});
  }
  throw InvalidArgument(
      fmt::format("{}: '{}' cannot be written: {}", flag, path.string(), std::strerror(error)));
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

void Console::catch_interrupts() { std::signal(SIGINT, on_interrupt); }

void check_writable(const std::filesystem::path& path, std::string_view flag) {
  if (std::filesystem::is_directory(path)) refuse_path(path, flag, EISDIR);
  const std::string temporary = temporary_beside(path);
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) refuse_path(path, flag, errno);
  ::close(file);
  ::unlink(temporary.c_str());
}

void write_file(const std::filesystem::path& path, std::string_view text, std::string_view flag) {
  const std::string temporary = temporary_beside(path);
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) refuse_path(path, flag, errno);
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::close(file);
      ::unlink(temporary.c_str());
      refuse_path(path, flag, error);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::close(file) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    refuse_path(path, flag, error);
  }
}

}  // namespace plimsoll::cli
