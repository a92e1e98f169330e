// SPDX-License-Identifier: Apache-2.0
#include "byte_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <spdlog/fmt/fmt.h>
#include <zlib.h>

#include "plimsoll/base/error.h"

namespace plimsoll::data {
namespace {

constexpr std::int64_t kLargestRead = std::int64_t{1} << 30;

gzFile as_gz(void* file) { return static_cast<gzFile>(file); }

}  // namespace

ByteReader::ByteReader(const std::filesystem::path& path) : path_(path.string()) {
  if (std::filesystem::is_directory(path)) throw InvalidFile(path_, "", "is a folder, not a file");
  errno = 0;
  file_ = gzopen(path_.c_str(), "rb");
  if (file_ == nullptr) {
    throw InvalidFile(path_, "",
                      fmt::format("cannot be opened: {}", std::strerror(errno ? errno : ENOMEM)));
  }
  gzbuffer(as_gz(file_), 1 << 17);
}

ByteReader::~ByteReader() { gzclose(as_gz(file_)); }

std::int64_t ByteReader::read_some(std::span<std::uint8_t> out) {
  std::int64_t done = 0;
  if (peeked_ >= 0 && !out.empty()) {
    out[0] = static_cast<std::uint8_t>(peeked_);
    peeked_ = -1;
    done = 1;
  }
  while (done < static_cast<std::int64_t>(out.size())) {
    const std::int64_t wanted =
        std::min(kLargestRead, static_cast<std::int64_t>(out.size()) - done);
    const int got = gzread(as_gz(file_), out.data() + done, static_cast<unsigned>(wanted));
    int status = Z_OK;
    const char* text = gzerror(as_gz(file_), &status);
    if (status == Z_ERRNO) {
      refuse(position_ + done + std::max(got, 0),
             fmt::format("cannot be read: {}", std::strerror(errno)));
    }
    // A gzip stream that ends early gives the bytes it has and then Z_BUF_ERROR.
    if (got < 0 || (status != Z_OK && status != Z_STREAM_END)) {
      refuse(position_ + done + std::max(got, 0),
             fmt::format("the gzip stream is damaged or cut off ({})", text));
    }
    if (got == 0) break;
    done += got;
  }
  return done;
}

void ByteReader::read(std::span<std::uint8_t> out, const std::string& what) {
  const std::int64_t got = read_some(out);
  if (got < static_cast<std::int64_t>(out.size())) {
    refuse(position_ + got, fmt::format("the file ends here, expected {} bytes more of {}",
                                        static_cast<std::int64_t>(out.size()) - got, what));
  }
  position_ += got;
}

std::uint32_t ByteReader::read_u32(const std::string& what) {
  std::array<std::uint8_t, 4> bytes{};
  read(bytes, what);
  std::uint32_t number = 0;
  for (const std::uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

bool ByteReader::at_end() {
  if (peeked_ >= 0) return false;
  std::uint8_t byte = 0;
  if (read_some({&byte, 1}) == 0) return true;
  peeked_ = byte;
  return false;
}

void ByteReader::refuse(std::int64_t position, const std::string& problem) const {
  throw InvalidFile(path_, fmt::format("byte {}", position), problem);
}

}  // namespace plimsoll::data
