// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/device/fault_plan.h"

namespace plimsoll::device {
namespace {

constexpr std::size_t index_of(FaultKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

const char* fault_kind_name(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::kReserve:
      return "reserve";
    case FaultKind::kCopyOut:
      return "copy_out";
    case FaultKind::kCopyIn:
      return "copy_in";
    case FaultKind::kSlide:
      return "slide";
    case FaultKind::kLateCopyOut:
      return "late_copy_out";
    case FaultKind::kLateCopyIn:
      return "late_copy_in";
    case FaultKind::kRecord:
      return "record";
    case FaultKind::kWait:
      return "wait";
    case FaultKind::kAllocateHost:
      return "allocate_host";
    case FaultKind::kFileOpen:
      return "file_open";
    case FaultKind::kFileGrow:
      return "file_grow";
    case FaultKind::kFileWrite:
      return "file_write";
    case FaultKind::kFileRead:
      return "file_read";
    case FaultKind::kCount:
      break;
  }
  return "none";
}

void FaultPlan::fail(FaultKind kind, std::int64_t nth) noexcept {
  calls_[index_of(kind)].store(0, std::memory_order_relaxed);
  nth_[index_of(kind)].store(nth, std::memory_order_relaxed);
}

void FaultPlan::reset() noexcept {
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    calls_[kind].store(0, std::memory_order_relaxed);
    nth_[kind].store(0, std::memory_order_relaxed);
  }
  fired_.store(0, std::memory_order_relaxed);
}

std::int64_t FaultPlan::calls(FaultKind kind) const noexcept {
  return calls_[index_of(kind)].load(std::memory_order_relaxed);
}

bool FaultPlan::strikes(FaultKind kind) noexcept {
  const std::int64_t call = calls_[index_of(kind)].fetch_add(1, std::memory_order_relaxed) + 1;
  if (call != nth_[index_of(kind)].load(std::memory_order_relaxed)) return false;
  fired_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

FaultKind copy_fault(CopyKind kind) noexcept {
  switch (kind) {
    case CopyKind::kDeviceToHost:
      return FaultKind::kCopyOut;
    case CopyKind::kHostToDevice:
      return FaultKind::kCopyIn;
    case CopyKind::kDeviceToDevice:
      return FaultKind::kSlide;
  }
  return FaultKind::kSlide;
}

}  // namespace plimsoll::device
