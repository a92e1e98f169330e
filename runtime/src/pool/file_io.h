// SPDX-License-Identifier: Apache-2.0
// Noun: FileIo, whole transfers between memory and a file descriptor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace plimsoll::pool {

// A piece of a transfer.
struct FileRequest {
  std::byte* data = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

enum class FileDirection : std::uint8_t { kRead, kWrite };

// Carries out requests of one direction, all or an error.
class FileIo {
 public:
  virtual ~FileIo() = default;
  // Returns 0, or the positive error number of the first request that failed; a read past the end
  // is EIO. No request is in flight any more when it returns.
  virtual int transfer(int file, FileDirection direction, std::vector<FileRequest> requests) = 0;
  virtual bool is_io_uring() const noexcept = 0;
};

std::unique_ptr<FileIo> make_positioned_io();
// Null where the build has no liburing or the kernel refuses a ring.
std::unique_ptr<FileIo> make_io_uring(int queue_depth);

}  // namespace plimsoll::pool
