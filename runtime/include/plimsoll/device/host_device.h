// SPDX-License-Identifier: Apache-2.0
// A device made of host memory: the arena is a mapping of the budget, the copy engines are threads.
//
// Nouns: HostDevice, HostDeviceOptions, ParallelFor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "plimsoll/device/device.h"
#include "plimsoll/device/fault_plan.h"

namespace plimsoll::device {

// Calls body(begin, end) for disjoint ranges that cover [0, count) bytes, from any threads, and
// returns when all have returned. at::parallel_for has this shape once its grain, in bytes, is
// bound.
using ParallelFor =
    std::function<void(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>&)>;

struct HostDeviceOptions {
  // Spreads blocking copies. Empty: `threads` threads of the device's own.
  ParallelFor parallel_for = {};
  int threads = 2;
  std::int64_t alignment_bytes = 64;
  // False: file traffic goes through a buffer, as on devices the host cannot address.
  bool is_host_addressable = true;
  // Blocking copies below this run on the caller's thread alone.
  std::int64_t parallel_copy_bytes = 256 << 10;
  // Each queued copy first waits for a pseudo-random time up to this (tests: makes a missing wait
  // visible); the seed makes it repeat.
  std::int64_t delay_ns = 0;
  std::uint64_t delay_seed = 1;
  FaultPlan* faults = nullptr;  // must outlive the device
};

// Queues: kCopyOut and kCopyIn are one thread each, started at first use; kCompute is the calling
// thread, so work on it has run when the call returns.
// Bytes: the arena is mapped without a reservation of pages; untouched pages cost nothing.
// Determinism: copies are exact; timing is not.
class HostDevice final : public Device {
 public:
  explicit HostDevice(HostDeviceOptions options = {});
  ~HostDevice() override;

  const DeviceInfo& info() const noexcept override { return info_; }
  void* reserve(std::int64_t bytes) override;
  void release() noexcept override;
  Event copy(void* destination, const void* source, std::int64_t bytes, CopyKind kind,
             Queue queue) override;
  void copy_blocking(void* destination, const void* source, std::int64_t bytes,
                     CopyKind kind) override;
  void fill(void* destination, std::int64_t bytes, std::uint8_t pattern) override;
  Event record(Queue queue) override;
  Event compute_mark() noexcept override { return {}; }
  void wait(Queue queue, const Event& event) override;
  bool done(const Event& event) const noexcept override;
  void synchronize(const Event& event) override;
  void* allocate_host(std::int64_t bytes) override;
  void free_host(void* pointer, std::int64_t bytes) noexcept override;

 private:
  class CopyEngine;
  class Workers;

  CopyEngine& engine(Queue queue);
  void strike(FaultKind kind, const char* call) const;
  void copy_parallel(std::byte* to, const std::byte* from, std::int64_t bytes, CopyKind kind);

  HostDeviceOptions options_;
  DeviceInfo info_;
  void* arena_ = nullptr;
  std::int64_t arena_bytes_ = 0;
  std::array<std::unique_ptr<CopyEngine>, kQueueCount> engines_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace plimsoll::device
