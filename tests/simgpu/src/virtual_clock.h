// SPDX-License-Identifier: Apache-2.0
// The clocks behind timeline.h: one for the host, one a stream, one for each direction of a
// device's link.
//
// Nouns: VirtualClock, OperationCost.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simgpu/timeline.h"
#include "streams_of_devices.h"

namespace plimsoll::simgpu {

struct OperationCost {
  TimedKind kind = TimedKind::kKernel;
  std::int64_t bytes = 0;
  double flops = 0;
  bool is_counted = true;  // false: bookkeeping that a real device would not do, such as poison
};

// A point of virtual time, of one recording; in any later one it is long past.
struct Instant {
  std::int64_t ns = 0;
  std::uint64_t recording = 0;
};

// Threads: needs the runtime's lock around every call.
class VirtualClock {
 public:
  void start(const Speeds& speeds);
  void stop() { is_on_ = false; }
  bool is_on() const { return is_on_; }

  void issue(int queue, std::string_view name, const OperationCost& cost);
  Instant record(int queue) const { return {time_of(queue), recording_}; }
  void wait(int queue, const Instant& event);
  void wait_on_host(const Instant& event);
  // Says whether the event has happened in virtual time; asking costs host time.
  bool has_happened(const Instant& event);

  const std::vector<TimedOperation>& operations() const { return operations_; }
  std::vector<StreamTimes> stream_times() const;
  std::int64_t end_ns() const;
  double hidden_copy_share() const;

 private:
  // The host's clock runs past a stream that has nothing to do.
  std::int64_t time_of(int queue) const;
  std::int64_t duration_ns(const OperationCost& cost) const;
  std::int64_t* link_of(int queue, TimedKind kind);
  std::int64_t ns_of(const Instant& event) const {
    return event.recording == recording_ ? event.ns : 0;
  }

  std::uint64_t recording_ = 0;
  bool is_on_ = false;
  Speeds speeds_;
  std::int64_t host_ns_ = 0;
  std::array<std::int64_t, kQueues> queue_ns_{};
  std::array<std::int64_t, kQueues> busy_ns_{};
  std::array<std::int64_t, kQueues> waited_ns_{};
  std::array<std::int64_t, kDevices * 2> link_ns_{};
  std::vector<TimedOperation> operations_;
};

}  // namespace plimsoll::simgpu
