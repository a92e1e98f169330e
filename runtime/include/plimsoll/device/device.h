// SPDX-License-Identifier: Apache-2.0
// What the runtime needs of a device: one arena, three in-order queues, copies and events.
//
// Nouns: Device, Queue, Event, CopyKind, DeviceInfo.
//
//     kCompute   ---[op]--[op]--r------------[op]-->        r: record   w: wait
//                                \          /
//     kCopyOut   -----------------w--[copy]-r---->
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll::device {

// The queues of a device. Work on one queue runs in the order of submission; queues are ordered
// among one another only by events.
enum class Queue : std::uint8_t { kCompute, kCopyOut, kCopyIn };
inline constexpr int kQueueCount = 3;

enum class CopyKind : std::uint8_t {
  kDeviceToHost,
  kHostToDevice,
  kDeviceToDevice,  // source and destination may overlap
};

struct DeviceInfo {
  std::string name;
  std::int64_t alignment_bytes = 64;   // of every block; a power of two
  bool is_compute_synchronous = true;  // operators have run when they return to the host
  bool is_host_addressable = true;     // system calls may read and write the arena
};

// A point in a queue. A value: copying it is free, and it needs no release. The default event has
// always happened.
struct Event {
  Queue queue = Queue::kCompute;
  std::uint64_t ticket = 0;
};

// The seam between the pool and hardware. The host may not be able to dereference the arena: only
// the device's own calls touch it.
// Threads: all calls need the caller's lock, except done() and synchronize(), which are safe.
// Errors: DeviceError from every call that is not noexcept, with nothing submitted.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const noexcept = 0;

  // Reserves the arena, `bytes` > 0, and returns its base, aligned to info().alignment_bytes.
  // The device owns it until release(). One arena at a time (InvalidArgument).
  // Errors: DeviceOutOfMemory where the device has less.
  virtual void* reserve(std::int64_t bytes) = 0;
  // Gives the arena back when all queues are through with it; no-op where there is none.
  virtual void release() noexcept = 0;

  // Submits a copy to a queue and returns the event of its end. Both ranges must stay valid, the
  // destination untouched and the source unwritten until it has happened. Where compute is
  // synchronous, a copy on kCompute is a blocking one.
  virtual Event copy(void* destination, const void* source, std::int64_t bytes, CopyKind kind,
                     Queue queue) = 0;

  // Copies now, after all that was submitted to kCompute, with all threads or engines there are,
  // and returns when the bytes are there. Copies pending on other queues are not waited for.
  virtual void copy_blocking(void* destination, const void* source, std::int64_t bytes,
                             CopyKind kind) = 0;

  // Writes `pattern` to every byte, now, ordered as copy_blocking.
  virtual void fill(void* destination, std::int64_t bytes, std::uint8_t pattern) = 0;

  // Marks the present end of a queue.
  virtual Event record(Queue queue) = 0;
  // The same for kCompute, without a call to the hardware: whoever waits for it may wait for a
  // later point of kCompute.
  virtual Event compute_mark() noexcept = 0;
  // Holds back later work of `queue` until the event has happened. Where compute is synchronous,
  // waiting on kCompute blocks the host.
  virtual void wait(Queue queue, const Event& event) = 0;
  // True where the event has happened or the work before it failed. Never blocks.
  virtual bool done(const Event& event) const noexcept = 0;
  // Blocks the host until the event has happened.
  // Errors: DeviceError where work between the previous event of that queue and this one failed;
  // the destination of that work holds anything, its source is untouched. Reported each time.
  virtual void synchronize(const Event& event) = 0;

  // Allocates host memory that copies run fastest from (pinned where that exists), page-aligned.
  // Errors: HostOutOfMemory.
  virtual void* allocate_host(std::int64_t bytes) = 0;
  virtual void free_host(void* pointer, std::int64_t bytes) noexcept = 0;
};

}  // namespace plimsoll::device
