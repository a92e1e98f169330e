// SPDX-License-Identifier: Apache-2.0
// A device of LibTorch's as the pool sees it, through c10's generic streams, events and allocators.
//
// Noun: StreamDevice.
//
//     kCompute   default: [op][op]--r
//                                    \                 kCompute is one line of work, on whatever
//                side stream:         w-[op][op]--r    stream the program is on: a stream that
//                takes
//                                                  \   over waits for the one before
//                default:                           w-[op]
//     kCopyOut, kCopyIn: a stream of the device's pool each
//
// A mark of kCompute is a number until somebody waits for it: then an event is recorded at the
// present end, which comes no earlier. What a queue has waited for is remembered, with all that
// follows from it, and waits that follow are not submitted.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "plimsoll/device/device.h"
#include "plimsoll/device/fault_plan.h"

namespace plimsoll::detail {

// No call but copy_blocking() and synchronize() waits for the device; allocate_host() where memory
// that was freed is still in use.
// Threads: as Device says; the calling thread's current device and streams are left as they are.
class StreamDevice final : public device::Device {
 public:
  // `memory` gives the arena; it and `faults`, which may be null, outlive the device. Faults of a
  // late kind leave a copy out in silence: a device that does that cannot be noticed but by its
  // results.
  StreamDevice(c10::Device where, c10::Allocator& memory, device::FaultPlan* faults);
  ~StreamDevice() override;

  const device::DeviceInfo& info() const noexcept override { return info_; }
  void* reserve(std::int64_t bytes) override;
  void release() noexcept override;
  device::Event copy(void* destination, const void* source, std::int64_t bytes,
                     device::CopyKind kind, device::Queue queue) override;
  void copy_blocking(void* destination, const void* source, std::int64_t bytes,
                     device::CopyKind kind) override;
  void fill(void* destination, std::int64_t bytes, std::uint8_t pattern) override;
  device::Event record(device::Queue queue) override;
  device::Event compute_mark() noexcept override { return next_ticket(device::Queue::kCompute); }
  void wait(device::Queue queue, const device::Event& event) override;
  bool done(const device::Event& event) const noexcept override;
  void synchronize(const device::Event& event) override;
  void* allocate_host(std::int64_t bytes) override;
  void free_host(void* pointer, std::int64_t bytes) noexcept override;

  // What this thread submits from now on, on its current stream, is kCompute's. Errors:
  // DeviceError.
  void follow_current_stream();
  // Puts what the stream was given so far in front of all that kCompute is given from now on.
  void join(const c10::Stream& stream) noexcept;
  // kCompute has been given work that uses this memory of LibTorch's: it is not reused before.
  void note_use(const c10::DataPtr& memory);

 private:
  // The tickets of each queue that some point of a queue comes after.
  using Clock = std::array<std::uint64_t, device::kQueueCount>;
  struct RecordedEvent {
    std::uint64_t ticket = 0;
    Clock after{};
    std::shared_ptr<c10::Event> event;
  };
  struct Line {
    std::uint64_t last_ticket = 0;
    std::uint64_t known_done = 0;      // it and all before it have happened
    Clock after{};                     // what its present end comes after
    std::deque<RecordedEvent> latest;  // in the order they were recorded
  };
  struct FreedHost {
    c10::DataPtr memory;
    std::array<device::Event, device::kQueueCount> used_until;
  };

  c10::Stream& stream_of(device::Queue queue);
  Line& line(device::Queue queue) const { return lines_[static_cast<std::size_t>(queue)]; }
  std::optional<RecordedEvent> find(const device::Event& event) const;
  std::optional<RecordedEvent> event_after(const device::Event& event);
  device::Event next_ticket(device::Queue queue) noexcept;
  void note_done(const RecordedEvent& recorded) const noexcept;
  RecordedEvent record_end(device::Queue queue);
  void strike(device::FaultKind kind, const char* call) const;
  void submit(void* destination, const void* source, std::int64_t bytes, device::CopyKind kind,
              const c10::Stream& stream);
  void slide(std::byte* to, const std::byte* from, std::int64_t bytes, const c10::Stream& stream);
  std::byte* bounce();
  device::Event submit_and_mark(void* destination, const void* source, std::int64_t bytes,
                                device::CopyKind kind, device::Queue queue);
  void wait_for(device::Queue queue) noexcept;
  void wait_for_all() noexcept;
  void end_freed_host(bool waits) noexcept;

  const c10::Device where_;
  const c10::impl::VirtualGuardImpl guard_;
  c10::Allocator& memory_;
  device::FaultPlan* const faults_;
  device::DeviceInfo info_;
  c10::Stream compute_;
  c10::Stream copy_out_;
  c10::Stream copy_in_;
  std::vector<c10::Stream> used_;  // all that the arena was used on
  c10::DataPtr arena_;
  c10::DataPtr bounce_;
  std::unordered_map<void*, c10::DataPtr> host_memory_;
  std::vector<FreedHost> freed_host_;

  mutable std::mutex events_mutex_;  // guards what follows
  mutable std::array<Line, device::kQueueCount> lines_;
};

}  // namespace plimsoll::detail
