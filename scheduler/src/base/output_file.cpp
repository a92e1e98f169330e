// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_path(const std::string& path, std::string_view flag, int error) {
  // EFBIG: the system's limit on the size of a file is a lack of room too.
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw HostOutOfMemory(
        fmt::format("{}: no room, '{}' was not written: {}", flag, path, std::strerror(error)), {});
  }
  throw InvalidArgument(
      fmt::format("{}: '{}' cannot be written: {}", flag, path, std::strerror(error)));
}

enum class Target { kFile, kStream, kNeither };

Target kind_of(const fs::path& path) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::fifo:
    case fs::file_type::character:
      return Target::kStream;
    case fs::file_type::directory:
    case fs::file_type::block:
    case fs::file_type::socket:
      return Target::kNeither;
    default:
      return Target::kFile;
  }
}

// What a link points to, so that the link stays. Where that does not exist, the link itself.
fs::path followed(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

int error_of_neither(const fs::path& path) { return fs::is_directory(path) ? EISDIR : ENOTSUP; }

}  // namespace

OutputFile::OutputFile(const fs::path& path, std::string_view flag)
    : path_(path.string()), flag_(flag) {
  const Target kind = kind_of(path);
  if (kind == Target::kNeither) refuse(error_of_neither(path));
  if (kind == Target::kStream) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file_ < 0) refuse(errno);
    return;
  }
  target_ = followed(path).string();
  // In the target's own folder, so that the rename cannot cross file systems.
  const std::string temporary = fmt::format("{}.tmp{}", target_, ::getpid());
  file_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) refuse(errno);
  temporary_ = temporary;
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* bytes, std::size_t count) {
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(file_, next, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse(errno);
    next += written;
    count -= static_cast<std::size_t>(written);
  }
}

void OutputFile::commit() {
  if (!temporary_.empty() && ::fsync(file_) != 0) refuse(errno);
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0) refuse(errno);
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) refuse(errno);
  temporary_.clear();
}

void OutputFile::refuse(int error) const { refuse_path(path_, flag_, error); }

void check_writable(const fs::path& path, std::string_view flag) {
  // Opening a pipe and closing it again would end it for its reader.
  if (kind_of(path) != Target::kStream) {
    const OutputFile probe(path, flag);
  } else if (::access(path.c_str(), W_OK) != 0) {
    refuse_path(path.string(), flag, errno);
  }
}

}  // namespace plimsoll
