// SPDX-License-Identifier: Apache-2.0
// The lower tier: evicted bytes in an unlinked file of a folder the user names.
//
// Nouns: FileTier, FileSpan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "plimsoll/device/fault_plan.h"

namespace plimsoll::pool {

// A range of the file; a value that only its tier understands.
struct FileSpan {
  std::int64_t offset = -1;
  std::int64_t bytes = 0;
  std::int32_t piece = -1;

  bool valid() const noexcept { return offset >= 0; }
};

struct FileTierOptions {
  std::filesystem::path folder = {};
  std::int64_t limit_bytes = INT64_MAX;  // of the file's ranges in use
  bool verify_checksums = false;         // costs a pass over the bytes each way
  bool allow_io_uring = true;            // false: positioned reads and writes
  std::int64_t chunk_bytes = 1 << 20;    // one request to the kernel
  int queue_depth = 8;                   // requests in flight
  device::FaultPlan* faults = nullptr;   // must outlive the tier
};

// The file has no name (it is unlinked at once), so nothing is left behind however the process
// ends. Ranges are reused; a range that is freed gives its pages back to the disk where the file
// system can (hole punching), at `trim()`.
// Uses io_uring where the build has liburing and the kernel allows it, else pread and pwrite.
// Threads: needs the caller's lock. All calls block until the bytes are on their way to the disk
// (page cache) or in memory.
class FileTier {
 public:
  // Errors: InvalidArgument where the folder does not exist or cannot be written.
  explicit FileTier(FileTierOptions options);
  ~FileTier();
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;

  // Takes a range of `bytes` > 0, contents undefined.
  // Errors: HostOutOfMemory where the disk or the limit is full, nothing changed; DeviceError.
  FileSpan allocate(std::int64_t bytes);
  // Writes part of a span from host memory. `offset` is a multiple of options().chunk_bytes.
  // Errors: HostOutOfMemory where the disk is full, DeviceError where the write fails otherwise;
  // the part then holds anything.
  void write(const FileSpan& span, std::int64_t offset, const void* source, std::int64_t bytes);
  // Reads part of a span, as write.
  // Errors: DeviceError where the read fails, ends early or a checksum is wrong; the span stays.
  void read(const FileSpan& span, std::int64_t offset, void* destination, std::int64_t bytes);
  void deallocate(const FileSpan& span) noexcept;
  // Gives the pages of free ranges back to the disk.
  void trim() noexcept;

  bool uses_io_uring() const noexcept;
  std::int64_t used_bytes() const noexcept;  // of spans
  std::int64_t file_bytes() const noexcept;  // the file's length
  const FileTierOptions& options() const noexcept;
  // Errors: InternalError naming the equation that does not hold.
  void check_invariants() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::pool
