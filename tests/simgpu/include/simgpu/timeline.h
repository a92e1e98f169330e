// SPDX-License-Identifier: Apache-2.0
// Virtual time: when every operation would begin and end on a device of given speeds, whatever the
// machine that runs the test does.
//
//   host      |issue|issue|issue|...........
//   stream 0        [kernel    ][kernel ]        a kernel begins when it was issued, its stream
//   stream 1              [copy in     ]         is free and what it waits for has ended
//
// Nouns: Speeds, TimedOperation, StreamTimes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace plimsoll::simgpu {

struct Speeds {
  double memory_bytes_per_ns = 1000;   // of kernels; 1 byte a ns is 1 GB/s
  double flops_per_ns = 50000;         // of convolutions and matrix products
  double to_device_bytes_per_ns = 25;  // the link, each direction on its own
  double to_host_bytes_per_ns = 25;
  std::int64_t launch_ns = 2000;  // the least a kernel takes
  std::int64_t copy_ns = 1500;    // the least a copy takes
  std::int64_t issue_ns = 1000;   // of host time for each operation
};

enum class TimedKind : std::uint8_t { kKernel, kCopyToDevice, kCopyToHost, kCopyOnDevice };

struct TimedOperation {
  std::string name;
  TimedKind kind = TimedKind::kKernel;
  int device = 0;
  int stream = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;
};

struct StreamTimes {
  int device = 0;
  int stream = 0;
  std::int64_t busy_ns = 0;    // in operations
  std::int64_t waited_ns = 0;  // for events of other streams, beyond the last operation's end
};

// Begins a new recording at virtual time 0 for host and streams. Operations are kept until the
// next call; until the first call none are kept. While a recording is on, an event's query answers
// by virtual time (and waits for real work where virtual work has ended), so that policies which
// poll behave the same on every machine.
// Threads: safe; concurrent host threads share the one host clock.
void start_timeline(const Speeds& speeds = {});
void stop_timeline();
std::vector<TimedOperation> timed_operations();
std::vector<StreamTimes> stream_times();
// The latest end of all streams and the host.
std::int64_t timeline_end_ns();

// The part of the time of all copies over the link in which no stream that computes stood for them,
// by a wait or because they are its own: 1 where copies cost nothing, 0 where computing stands
// still for all of them; 1 without copies.
double hidden_copy_share();

// As Chrome's about:tracing and Perfetto read it.
void write_chrome_trace(std::ostream& out);

}  // namespace plimsoll::simgpu
