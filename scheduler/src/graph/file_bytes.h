// SPDX-License-Identifier: Apache-2.0
// Whole files into memory, within a limit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace plimsoll::graph {

// The largest file any reader takes: a graph of 10^7 ops fits, a file by mistake does not hang us.
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;

// Errors: InvalidFile where the path is no readable regular file or exceeds `limit_bytes`.
std::string read_file_bytes(const std::filesystem::path& path,
                            std::int64_t limit_bytes = kMaxFileBytes);

}  // namespace plimsoll::graph
