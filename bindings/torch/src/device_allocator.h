// SPDX-License-Identifier: Apache-2.0
// The c10::Allocator that Plimsoll puts in front of a device's own.
//
// Noun: DeviceAllocator (one in a process, made once, never destroyed).
//
// A request goes to the arena of the operator that runs on this thread, where that is of the
// current device; else to the device's own allocator, counted by level 0.
#pragma once

#include <deque>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "heap_account.h"

namespace plimsoll::detail {

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  // The one in front of this kind of device, installed into LibTorch on the first call. Errors:
  // Unsupported where LibTorch has no such device here, where its allocator cannot be stood in
  // front of, or where ours stands in front of another kind's.
  static DeviceAllocator& installed(c10::DeviceType type);

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    stock_.copy_data(dest, src, count);
  }
  bool initialized() override { return stock_.initialized(); }
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override { stock_.emptyCache(pool); }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return stock_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    stock_.resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { stock_.resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return stock_.getMemoryInfo(device);
  }

  // The device's own allocator; what it gives is not counted.
  c10::DeviceAllocator& stock() { return stock_; }
  // Memory of the current device that is in no arena, whatever scope is open.
  c10::DataPtr allocate_outside(std::size_t bytes);
  // Says whether storages with this deleter may be moved: the device's own, or ours.
  bool owns_deleter(c10::DeleterFnPtr deleter) const;
  HeapAccount& account(c10::DeviceIndex device);

 private:
  DeviceAllocator(c10::DeviceType type, c10::DeviceAllocator& stock);
  static void release(void* address);

  const c10::DeviceType type_;
  const c10::impl::VirtualGuardImpl guard_;
  c10::DeviceAllocator& stock_;
  std::deque<HeapAccount> accounts_;  // by device
};

}  // namespace plimsoll::detail
