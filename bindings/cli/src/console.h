// SPDX-License-Identifier: Apache-2.0
// Where a command's words go, and whether the user asked to stop.
//
// Nouns: Console, Progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "plimsoll/base/output_file.h"

namespace plimsoll::cli {

// Standard output carries the result: people's text, or JSON alone where --json - was given (the
// text then goes to standard error). Progress goes to standard error, only on a terminal or where
// --progress was given.
class Console {
 public:
  struct Options {
    bool quiet = false;
    bool force_progress = false;
    bool json_on_stdout = false;
  };
  explicit Console(const Options& options);

  // Prints a line of the result; nothing where --quiet was given.
  void print(std::string_view line);
  // Prints a line to standard error, also under --quiet.
  void warn(std::string_view line);
  // Shows one line of progress, overwriting the last one; at most ten a second, except where
  // done == total.
  void progress(std::string_view what, std::int64_t done, std::int64_t total,
                std::string_view detail = "");
  // Ends the progress line, if one stands.
  void end_progress();
  // Says whether Ctrl-C was pressed. Throws Interrupted from throw_if_interrupted().
  static bool interrupted() noexcept;
  static void throw_if_interrupted();
  // Makes Ctrl-C set interrupted() instead of killing the process; a second one kills. Makes a file
  // that outgrows the system's limit an error of its write.
  static void take_signals();

 private:
  Options options_;
  bool show_progress_ = false;
  bool line_stands_ = false;
  std::chrono::steady_clock::time_point last_progress_;
};

// Writes a whole file or leaves what was there. `flag` names the origin in the message.
// Errors: as OutputFile.
void write_file(const std::filesystem::path& path, std::string_view text, std::string_view flag);

}  // namespace plimsoll::cli
