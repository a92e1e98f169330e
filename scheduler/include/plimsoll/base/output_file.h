// SPDX-License-Identifier: Apache-2.0
// Files that are written whole or not at all.
//
// Noun: OutputFile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace plimsoll {

// Writes a temporary beside `path` that takes its name in commit(). A link is followed and stays,
// also one to what does not exist yet. A pipe, a character device and a descriptor (/dev/stdout,
// /dev/fd/3; whatever stands behind it) are written as they stand, from where they are.
// Threads: single owner.
class OutputFile {
 public:
  // `flag` names the origin in messages. Errors, of every call: InvalidArgument where the folder or
  // the file cannot be written, HostOutOfMemory where there is no room for it.
  OutputFile(const std::filesystem::path& path, std::string_view flag);
  // Without commit() what was there stays, and the temporary goes.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* bytes, std::size_t count);
  // Waits until the disk has it, then gives it its name.
  void commit();

 private:
  void open_temporary();
  [[noreturn]] void refuse(int error) const;

  std::string path_;  // as it was given
  std::string flag_;
  std::string target_;     // where its links end
  std::string temporary_;  // "" where the target is written as it stands
  int file_ = -1;
};

// The one file that an OutputFile would replace, by its absolute name without links; "" where it
// would replace none: what is written as it stands, or cannot be written.
std::string replaced_file(const std::filesystem::path& path);

// Says early that `path` cannot be written, before an hour of work. Leaves nothing behind.
// Errors: as OutputFile.
void check_writable(const std::filesystem::path& path, std::string_view flag);

}  // namespace plimsoll
