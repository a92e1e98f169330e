// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

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

enum class Kind { kFile, kStream, kDescriptor, kNeither };

struct Target {
  Kind kind = Kind::kNeither;
  std::string path;     // where all links end, absolute
  int descriptor = -1;  // kDescriptor: one that this process holds
  int error = 0;        // kNeither: why
};

Target neither(int error) { return {.kind = Kind::kNeither, .path = "", .error = error}; }

// Where `folder` (canonical) is a process's list of descriptors, what the file `name` in it is.
// Behind such a name may stand any file, even one without a name: it is never replaced. Our own is
// shared, not opened again, which would begin at byte 0 and may not be allowed.
std::optional<Target> as_descriptor(const fs::path& folder, const std::string& name) {
  const auto parts = std::distance(folder.begin(), folder.end());
  const bool is_list = folder.native().rfind("/proc/", 0) == 0 && folder.filename() == "fd" &&
                       (parts == 4 || parts == 6);  // /proc/1/fd, /proc/1/task/1/fd
  if (!is_list || name.empty() || name.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  Target target = {.kind = Kind::kStream, .path = (folder / name).string()};
  std::error_code error;
  const std::string own = fs::canonical("/proc/self", error).string() + "/";
  if (error || folder.native().rfind(own, 0) != 0) return target;
  target.kind = Kind::kDescriptor;
  const char* end = name.data() + name.size();
  if (std::from_chars(name.data(), end, target.descriptor).ec != std::errc()) return neither(EBADF);
  return target;
}

Target at_end_of_links(const fs::path& path) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::fifo:
    case fs::file_type::character:
      return {.kind = Kind::kStream, .path = path.string()};
    case fs::file_type::directory:
      return neither(EISDIR);
    case fs::file_type::block:
    case fs::file_type::socket:
      return neither(ENOTSUP);
    default:
      return {.kind = Kind::kFile, .path = path.string()};
  }
}

// Link by link: fs::canonical() knows no link to what does not exist yet, and goes through a
// descriptor to the file behind it.
Target follow(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code error;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    const fs::path real = fs::canonical(folder, error);
    if (error) return neither(error.value());
    if (std::optional<Target> found = as_descriptor(real, path.filename().string())) return *found;
    if (!fs::is_symlink(fs::symlink_status(path, error)))
      return at_end_of_links(real / path.filename());
    const fs::path next = fs::read_symlink(path, error);
    if (error) return neither(error.value());
    path = folder / next;
  }
  return neither(ELOOP);
}

// The descriptor is the program's, whose other writes share its flags: it may refuse to wait.
void wait_for_room(int file) {
  pollfd wanted = {.fd = file, .events = POLLOUT, .revents = 0};
  ::poll(&wanted, 1, -1);
}

}  // namespace

OutputFile::OutputFile(const fs::path& path, std::string_view flag)
    : path_(path.string()), flag_(flag) {
  Target target = follow(path);
  if (target.kind == Kind::kNeither) refuse(target.error);
  target_ = std::move(target.path);
  if (target.kind == Kind::kDescriptor) {
    file_ = ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0);
  } else if (target.kind == Kind::kStream) {
    // O_APPEND: another process's descriptor may stand for a file, which keeps what it holds.
    file_ = ::open(target_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
  } else {
    open_temporary();
  }
  if (file_ < 0) refuse(errno);
}

// In the target's own folder, so that the rename cannot cross file systems. O_EXCL: in another
// container a process of the same number may be writing there.
void OutputFile::open_temporary() {
  constexpr int kMostTries = 1000;
  for (int count = 0; count < kMostTries; ++count) {
    // The name before the file: nothing that may throw comes once the file exists.
    temporary_ = fmt::format("{}.tmp{}-{}", target_, ::getpid(), count);
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ >= 0 || errno != EEXIST) return;
  }
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
    if (written < 0 && errno == EAGAIN) {
      wait_for_room(file_);
      continue;
    }
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

std::string replaced_file(const fs::path& path) {
  const Target target = follow(path);
  return target.kind == Kind::kFile ? target.path : "";
}

void check_writable(const fs::path& path, std::string_view flag) {
  const Target target = follow(path);
  if (target.kind == Kind::kDescriptor) {
    const int flags = ::fcntl(target.descriptor, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) refuse_path(path.string(), flag, EBADF);
  } else if (target.kind == Kind::kStream) {
    // Opening a pipe and closing it again would end it for its reader.
    if (::access(target.path.c_str(), W_OK) != 0) refuse_path(path.string(), flag, errno);
  } else {
    const OutputFile probe(path, flag);
  }
}

}  // namespace plimsoll
