// SPDX-License-Identifier: Apache-2.0
// The family of exceptions that every part throws, and the checks for our own bugs.
//
// Nouns: Error, ErrorCode. Callers branch on the type or the code, never on the text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace plimsoll {

enum class ErrorCode : std::uint8_t {
  kInvalidArgument,
  kInvalidFile,
  kInfeasibleBudget,
  kDeviceOutOfMemory,
  kHostOutOfMemory,
  kDeviceError,
  kDivergence,
  kUnsupported,
  kInterrupted,
  kInternal,
};

// Returns the code's name as it stands in JSON, such as "infeasible_budget".
const char* error_code_name(ErrorCode code) noexcept;

// The root of the family. The message is one sentence that names the place, the value and what
// would be right; messages about memory end with the numbers in bytes.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// A wrong argument, flag or option value.
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message)
      : Error(ErrorCode::kInvalidArgument, message) {}
};

// A file that cannot be read, written or understood. `position` names the place inside it
// ("line 3", "byte 120", "ops[4].operands"), or is empty.
class InvalidFile : public Error {
 public:
  InvalidFile(std::string file, std::string position, const std::string& problem);
  const std::string& file() const noexcept { return file_; }
  const std::string& position() const noexcept { return position_; }

 private:
  std::string file_;
  std::string position_;
};

// A budget that cannot work. Carries the smallest that can (bytes) and what pins it.
class InfeasibleBudget : public Error {
 public:
  InfeasibleBudget(std::int64_t budget_bytes, std::int64_t minimum_budget_bytes,
                   std::string pinned_by);
  std::int64_t budget_bytes() const noexcept { return budget_bytes_; }
  std::int64_t minimum_budget_bytes() const noexcept { return minimum_budget_bytes_; }
  const std::string& pinned_by() const noexcept { return pinned_by_; }

 private:
  std::int64_t budget_bytes_;
  std::int64_t minimum_budget_bytes_;
  std::string pinned_by_;
};

// What a memory resource says when a request does not fit. All figures in bytes.
struct MemoryFigures {
  std::int64_t requested_bytes = 0;
  std::int64_t live_bytes = 0;
  std::int64_t limit_bytes = 0;
  std::int64_t largest_free_bytes = 0;
};

// Device memory (the budget) is exhausted. The state is as before the request.
class DeviceOutOfMemory : public Error {
 public:
  DeviceOutOfMemory(const std::string& what_for, const MemoryFigures& figures);
  const MemoryFigures& figures() const noexcept { return figures_; }

 private:
  MemoryFigures figures_;
};

// The host tier or the file tier is exhausted (its limit, the machine's memory, the disk).
class HostOutOfMemory : public Error {
 public:
  HostOutOfMemory(const std::string& what_for, const MemoryFigures& figures);
  const MemoryFigures& figures() const noexcept { return figures_; }

 private:
  MemoryFigures figures_;
};

// A device or file call failed. The message names the call and the system's own text.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ErrorCode::kDeviceError, message) {}
};

// A step or a replay departed from its plan where that cannot be mended.
class Divergence : public Error {
 public:
  explicit Divergence(const std::string& message) : Error(ErrorCode::kDivergence, message) {}
};

// Something valid that Plimsoll does not do.
class Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& message) : Error(ErrorCode::kUnsupported, message) {}
};

// The user asked to stop (Ctrl-C) and the work ended cleanly.
class Interrupted : public Error {
 public:
  Interrupted() : Error(ErrorCode::kInterrupted, "interrupted") {}
};

// A bug of ours.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ErrorCode::kInternal, message) {}
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);
}  // namespace detail
}  // namespace plimsoll

// For our own bugs, always on; user input never reaches it. Throws InternalError.
#define PLIMSOLL_CHECK(condition, message)                                         \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::plimsoll::detail::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)

// The debug form of PLIMSOLL_CHECK, for checks too slow for release builds.
#ifdef NDEBUG
#define PLIMSOLL_DCHECK(condition, message) \
  do {                                      \
  } while (false)
#else
#define PLIMSOLL_DCHECK(condition, message) PLIMSOLL_CHECK(condition, message)
#endif
