// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>

#include "pool/file_io.h"

namespace plimsoll::pool {
namespace {

class PositionedIo final : public FileIo {
 public:
  int transfer(int file, FileDirection direction, std::vector<FileRequest> requests) override {
    for (FileRequest& request : requests) {
      while (request.bytes > 0) {
        const auto bytes = static_cast<std::size_t>(request.bytes);
        const ssize_t moved = direction == FileDirection::kWrite
                                  ? pwrite(file, request.data, bytes, request.offset)
                                  : pread(file, request.data, bytes, request.offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return direction == FileDirection::kWrite ? ENOSPC : EIO;
        request.data += moved;
        request.offset += moved;
        request.bytes -= moved;
      }
    }
    return 0;
  }
  bool is_io_uring() const noexcept override { return false; }
};

}  // namespace

std::unique_ptr<FileIo> make_positioned_io() { return std::make_unique<PositionedIo>(); }

}  // namespace plimsoll::pool
