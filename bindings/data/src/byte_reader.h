// SPDX-License-Identifier: Apache-2.0
// Reads a plain or gzip file to the byte, with errors that name the place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace plimsoll::data {

// Positions count bytes of the unpacked content.
class ByteReader {
 public:
  // Errors: InvalidFile where the file cannot be opened.
  explicit ByteReader(const std::filesystem::path& path);
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  ~ByteReader();

  std::int64_t position() const noexcept { return position_; }
  // Fills `out` whole. `what` says what stands there. Errors: InvalidFile where the file ends
  // before or the gzip stream is damaged.
  void read(std::span<std::uint8_t> out, const std::string& what);
  // Reads a big-endian 32-bit number.
  std::uint32_t read_u32(const std::string& what);
  // Says whether the file ends here. Errors: InvalidFile for a damaged gzip stream.
  bool at_end();
  // Throws InvalidFile at `position`.
  [[noreturn]] void refuse(std::int64_t position, const std::string& problem) const;

 private:
  // Reads up to out.size() bytes and returns how many came.
  std::int64_t read_some(std::span<std::uint8_t> out);

  std::string path_;
  void* file_ = nullptr;
  std::int64_t position_ = 0;
  int peeked_ = -1;
};

}  // namespace plimsoll::data
