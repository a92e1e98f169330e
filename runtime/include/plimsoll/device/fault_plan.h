// SPDX-License-Identifier: Apache-2.0
// Makes the n-th device or file call of a kind fail, so that every failure path can be walked.
//
// Nouns: FaultKind, FaultPlan.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plimsoll/device/device.h"

namespace plimsoll::device {

enum class FaultKind : std::uint8_t {
  kReserve,
  kCopyOut,      // the submission of a device to host copy fails
  kCopyIn,       // ... host to device
  kSlide,        // ... device to device
  kLateCopyOut,  // a queued device to host copy fails half-way, seen at synchronize()
  kLateCopyIn,   // ... host to device
  kRecord,
  kWait,
  kAllocateHost,
  kFileOpen,
  kFileGrow,   // taking the file's blocks from the disk fails as on a full one
  kFileWrite,  // a write fails as on a full disk
  kFileRead,
  kCount,
};

// Returns the kind's name, such as "copy_out".
const char* fault_kind_name(FaultKind kind) noexcept;

// What fails where a copy of this kind cannot be submitted.
FaultKind copy_fault(CopyKind kind) noexcept;

// Counts the calls of each kind and says which of them fails. Shared by a device and file tiers,
// which keep a reference: the plan outlives them.
// Threads: safe. Cost: one relaxed atomic increment a call.
class FaultPlan {
 public:
  // Lets the n-th call (from 1) of `kind` from now on fail, once. 0 disarms the kind.
  void fail(FaultKind kind, std::int64_t nth) noexcept;
  // Disarms everything and forgets the counts.
  void reset() noexcept;
  // Calls of `kind` since the last fail(kind, ...) or reset().
  std::int64_t calls(FaultKind kind) const noexcept;
  // Faults that were handed out since reset().
  std::int64_t fired() const noexcept { return fired_.load(std::memory_order_relaxed); }
  // Counts one call; true where it is to fail.
  bool strikes(FaultKind kind) noexcept;

 private:
  static constexpr std::size_t kKinds = static_cast<std::size_t>(FaultKind::kCount);
  std::array<std::atomic<std::int64_t>, kKinds> calls_{};
  std::array<std::atomic<std::int64_t>, kKinds> nth_{};
  std::atomic<std::int64_t> fired_{0};
};

}  // namespace plimsoll::device
