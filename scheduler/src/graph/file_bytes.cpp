// SPDX-License-Identifier: Apache-2.0
#include "graph/file_bytes.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::graph {

std::string read_file_bytes(const std::filesystem::path& path, std::int64_t limit_bytes) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status))
    throw InvalidFile(path.string(), "", "there is no such file");
  if (!std::filesystem::is_regular_file(status))
    throw InvalidFile(path.string(), "", "is not a regular file");
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, failure));
  if (failure) throw InvalidFile(path.string(), "", failure.message());
  if (size > limit_bytes)
    throw InvalidFile(path.string(), "",
                      fmt::format("has {} bytes; at most {} are read", size, limit_bytes));
  std::ifstream stream(path, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  if (!stream || !stream.read(bytes.data(), size))
    throw InvalidFile(path.string(), "", fmt::format("cannot be read: {}", std::strerror(errno)));
  return bytes;
}

}  // namespace plimsoll::graph
