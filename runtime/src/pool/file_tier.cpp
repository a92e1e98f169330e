// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/file_tier.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/pool/range_allocator.h"

#include "pool/file_io.h"

namespace plimsoll::pool {
namespace {

constexpr std::int64_t kPageBytes = 4096;
constexpr std::int64_t kAddressSpaceBytes = std::int64_t{1} << 50;  // longer than any file here

// FNV-1a over 8-byte words (Fowler, Noll, Vo); finds what a disk or a bug of ours garbles.
std::uint64_t checksum_of(const std::byte* data, std::int64_t bytes) {
  std::uint64_t sum = 0xcbf29ce484222325ULL;
  const auto mix = [&sum](std::uint64_t word) { sum = (sum ^ word) * 0x100000001b3ULL; };
  std::int64_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, 8);
    mix(word ^ (word >> 32));
  }
  for (; i < bytes; ++i) mix(static_cast<std::uint64_t>(data[i]));
  return sum;
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

// Opens a file without a name: O_TMPFILE where the file system has it, else unlinked at once.
int open_unnamed(const std::filesystem::path& folder) {
  const int unnamed = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0 ||
      (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
    return unnamed;
  std::string name = (folder / "plimsoll-spill-XXXXXX").string();
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

}  // namespace

class FileTier::State {
 public:
  explicit State(FileTierOptions options)
      : options_(std::move(options)), ranges_(kAddressSpaceBytes, kPageBytes) {
    if (options_.chunk_bytes < kPageBytes || options_.chunk_bytes % kPageBytes != 0 ||
        options_.queue_depth < 1)
      throw InvalidArgument(
          fmt::format("file chunks of {} bytes, {} in flight; multiples of {} and at "
                      "least 1 are needed",
                      options_.chunk_bytes, options_.queue_depth, kPageBytes));
    if (strikes(device::FaultKind::kFileOpen))
      errno = EACCES;
    else
      file_ = open_unnamed(options_.folder);
    if (file_ < 0)
      throw InvalidArgument(fmt::format("the spill folder '{}' cannot hold a file: {}",
                                        options_.folder.string(), std::strerror(errno)));
    if (options_.allow_io_uring) io_ = make_io_uring(options_.queue_depth);
    if (!io_) io_ = make_positioned_io();
  }
  ~State() { close(file_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  FileSpan allocate(std::int64_t bytes) {
    if (bytes <= 0) throw InvalidArgument(fmt::format("a file span of {} bytes", bytes));
    if (bytes > options_.limit_bytes - used_bytes_)
      throw HostOutOfMemory("the file tier's limit is reached", figures(bytes));
    const std::optional<SegmentId> segment = ranges_.allocate(bytes);
    if (!segment) throw HostOutOfMemory("the spill file is full", figures(bytes));
    try {
      if (options_.verify_checksums) checksums_for(*segment, bytes);
      grow_to(ranges_.offset(*segment) + ranges_.bytes(*segment), bytes);
    } catch (...) {
      ranges_.deallocate(*segment);
      throw;
    }
    used_bytes_ += bytes;
    return {ranges_.offset(*segment), bytes, segment->value()};
  }

  void deallocate(const FileSpan& span) noexcept {
    if (!span.valid()) return;
    ranges_.deallocate(SegmentId(span.piece));
    used_bytes_ -= span.bytes;
  }

  void write(const FileSpan& span, std::int64_t offset, const void* source, std::int64_t bytes) {
    check_part(span, offset, bytes);
    const auto* data = static_cast<const std::byte*>(source);
    int error = strikes(device::FaultKind::kFileWrite) ? ENOSPC : 0;
    // The interface takes writable memory for both directions; a write leaves it alone.
    if (error == 0)
      error = io_->transfer(file_, FileDirection::kWrite,
                            requests(span, offset, const_cast<std::byte*>(data), bytes));
    if (is_full(error))
      throw HostOutOfMemory("the disk of the spill folder is full", figures(bytes));
    if (error != 0) throw DeviceError(message("writing", span, error));
    if (options_.verify_checksums)
      for_each_chunk(offset, bytes,
                     [&](std::int64_t chunk, std::int64_t begin, std::int64_t length) {
                       sum_of(span, chunk) = checksum_of(data + begin, length);
                     });
  }

  void read(const FileSpan& span, std::int64_t offset, void* destination, std::int64_t bytes) {
    check_part(span, offset, bytes);
    auto* data = static_cast<std::byte*>(destination);
    int error = strikes(device::FaultKind::kFileRead) ? EIO : 0;
    if (error == 0)
      error = io_->transfer(file_, FileDirection::kRead, requests(span, offset, data, bytes));
    if (error != 0) throw DeviceError(message("reading", span, error));
    if (!options_.verify_checksums) return;
    for_each_chunk(offset, bytes, [&](std::int64_t chunk, std::int64_t begin, std::int64_t length) {
      if (sum_of(span, chunk) != checksum_of(data + begin, length))
        throw DeviceError(fmt::format("the spill file's bytes at {} are not what was written",
                                      span.offset + offset + begin));
    });
  }

  void trim() noexcept {
    std::int64_t end = 0;
    for (SegmentId id = ranges_.first(); id.valid(); id = ranges_.next(id)) {
      if (!ranges_.is_free(id)) {
        end = ranges_.offset(id) + ranges_.bytes(id);
        continue;
      }
      const std::int64_t length = std::min(ranges_.bytes(id), file_bytes_ - ranges_.offset(id));
      if (length > 0)  // a wish: without hole punching the disk keeps the pages
        (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, ranges_.offset(id),
                        length);
    }
    if (end < file_bytes_ && ftruncate(file_, end) == 0) file_bytes_ = end;
  }

  void check_invariants() const {
    ranges_.check_invariants();
    PLIMSOLL_CHECK(used_bytes_ >= 0 && used_bytes_ <= ranges_.used_bytes(),
                   "file bytes are miscounted");
    PLIMSOLL_CHECK(used_bytes_ <= options_.limit_bytes, "the file tier's limit is exceeded");
    for (SegmentId id = ranges_.first(); id.valid(); id = ranges_.next(id))
      PLIMSOLL_CHECK(ranges_.is_free(id) || ranges_.offset(id) + ranges_.bytes(id) <= file_bytes_,
                     "a span lies beyond the end of the file");
  }

  FileTierOptions options_;
  std::unique_ptr<FileIo> io_;
  std::int64_t used_bytes_ = 0;
  std::int64_t file_bytes_ = 0;

 private:
  bool strikes(device::FaultKind kind) const {
    return options_.faults != nullptr && options_.faults->strikes(kind);
  }
  MemoryFigures figures(std::int64_t bytes) const {
    return {bytes, used_bytes_, options_.limit_bytes, options_.limit_bytes - used_bytes_};
  }
  std::string message(const char* verb, const FileSpan& span, int error) const {
    return fmt::format("{} {} bytes at {} of the spill file in '{}': {}", verb, span.bytes,
                       span.offset, options_.folder.string(), std::strerror(error));
  }
  void check_part(const FileSpan& span, std::int64_t offset, std::int64_t bytes) const {
    if (!span.valid() || offset < 0 || bytes < 0 || offset % options_.chunk_bytes != 0 ||
        bytes > span.bytes - offset)
      throw InvalidArgument(
          fmt::format("bytes [{}, {}) of a file span of {}", offset, offset + bytes, span.bytes));
  }

  // Makes the file longer, its blocks taken from the disk at once where the file system can, so
  // that a full disk is known before anything is written.
  void grow_to(std::int64_t end, std::int64_t requested) {
    if (end <= file_bytes_) return;
    int error = 0;
    if (strikes(device::FaultKind::kFileGrow)) {
      error = ENOSPC;
    } else if (fallocate(file_, 0, file_bytes_, end - file_bytes_) != 0) {
      error = errno;
    }
    if (error == EOPNOTSUPP || error == ENOSYS) error = ftruncate(file_, end) == 0 ? 0 : errno;
    if (is_full(error))
      throw HostOutOfMemory("the disk of the spill folder is full", figures(requested));
    if (error != 0)
      throw DeviceError(fmt::format("growing the spill file in '{}' to {} bytes: {}",
                                    options_.folder.string(), end, std::strerror(error)));
    file_bytes_ = end;
  }

  std::vector<FileRequest> requests(const FileSpan& span, std::int64_t offset, std::byte* data,
                                    std::int64_t bytes) const {
    std::vector<FileRequest> requests;
    for (std::int64_t done = 0; done < bytes; done += options_.chunk_bytes)
      requests.push_back(
          {data + done, span.offset + offset + done, std::min(options_.chunk_bytes, bytes - done)});
    return requests;
  }

  template <typename Body>
  void for_each_chunk(std::int64_t offset, std::int64_t bytes, const Body& body) const {
    for (std::int64_t done = 0; done < bytes; done += options_.chunk_bytes)
      body((offset + done) / options_.chunk_bytes, done,
           std::min(options_.chunk_bytes, bytes - done));
  }

  void checksums_for(SegmentId segment, std::int64_t bytes) {
    if (checksums_.size() <= segment.index()) checksums_.resize(segment.index() + 1);
    checksums_[segment.index()].assign(
        static_cast<std::size_t>((bytes + options_.chunk_bytes - 1) / options_.chunk_bytes), 0);
  }
  std::uint64_t& sum_of(const FileSpan& span, std::int64_t chunk) {
    return checksums_[SegmentId(span.piece).index()][static_cast<std::size_t>(chunk)];
  }

  RangeAllocator ranges_;
  std::vector<std::vector<std::uint64_t>> checksums_;  // of each segment in use, by chunk
  int file_ = -1;
};

FileTier::FileTier(FileTierOptions options) : state_(std::make_unique<State>(std::move(options))) {}
FileTier::~FileTier() = default;
FileSpan FileTier::allocate(std::int64_t bytes) { return state_->allocate(bytes); }
void FileTier::write(const FileSpan& span, std::int64_t offset, const void* source,
                     std::int64_t bytes) {
  state_->write(span, offset, source, bytes);
}
void FileTier::read(const FileSpan& span, std::int64_t offset, void* destination,
                    std::int64_t bytes) {
  state_->read(span, offset, destination, bytes);
}
void FileTier::deallocate(const FileSpan& span) noexcept { state_->deallocate(span); }
void FileTier::trim() noexcept { state_->trim(); }
bool FileTier::uses_io_uring() const noexcept { return state_->io_->is_io_uring(); }
std::int64_t FileTier::used_bytes() const noexcept { return state_->used_bytes_; }
std::int64_t FileTier::file_bytes() const noexcept { return state_->file_bytes_; }
const FileTierOptions& FileTier::options() const noexcept { return state_->options_; }
void FileTier::check_invariants() const { state_->check_invariants(); }

}  // namespace plimsoll::pool
