// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/error.h"

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/size.h"

namespace plimsoll {
namespace {

std::string memory_message(const std::string& what_for, const MemoryFigures& figures) {
  // No figures: what_for says all there is.
  if (figures.requested_bytes == 0 && figures.limit_bytes == 0) return what_for;
  return fmt::format("{} (requested {} bytes, live {}, limit {}, largest free {})", what_for,
                     figures.requested_bytes, figures.live_bytes, figures.limit_bytes,
                     figures.largest_free_bytes);
}

std::string file_message(const std::string& file, const std::string& position,
                         const std::string& problem) {
  if (position.empty()) return fmt::format("{}: {}", file, problem);
  return fmt::format("{}, {}: {}", file, position, problem);
}

}  // namespace

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kInvalidFile:
      return "invalid_file";
    case ErrorCode::kInfeasibleBudget:
      return "infeasible_budget";
    case ErrorCode::kDeviceOutOfMemory:
      return "device_out_of_memory";
    case ErrorCode::kHostOutOfMemory:
      return "host_out_of_memory";
    case ErrorCode::kDeviceError:
      return "device_error";
    case ErrorCode::kDivergence:
      return "divergence";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kInterrupted:
      return "interrupted";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

InvalidFile::InvalidFile(std::string file, std::string position, const std::string& problem)
    : Error(ErrorCode::kInvalidFile, file_message(file, position, problem)),
      file_(std::move(file)),
      position_(std::move(position)) {}

InfeasibleBudget::InfeasibleBudget(std::int64_t budget_bytes, std::int64_t minimum_budget_bytes,
                                   std::string pinned_by)
    : Error(ErrorCode::kInfeasibleBudget,
            fmt::format("a budget of {} cannot work: it takes {}, pinned by {} ({} bytes asked, "
                        "{} bytes needed)",
                        format_size(budget_bytes), format_size(minimum_budget_bytes), pinned_by,
                        budget_bytes, minimum_budget_bytes)),
      budget_bytes_(budget_bytes),
      minimum_budget_bytes_(minimum_budget_bytes),
      pinned_by_(std::move(pinned_by)) {}

DeviceOutOfMemory::DeviceOutOfMemory(const std::string& what_for, const MemoryFigures& figures)
    : Error(ErrorCode::kDeviceOutOfMemory, memory_message(what_for, figures)), figures_(figures) {}

HostOutOfMemory::HostOutOfMemory(const std::string& what_for, const MemoryFigures& figures)
    : Error(ErrorCode::kHostOutOfMemory, memory_message(what_for, figures)), figures_(figures) {}

namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{} (check '{}' failed at {}:{}; this is a bug in Plimsoll)",
                                  message, condition, file, line));
}

}  // namespace detail
}  // namespace plimsoll
