// SPDX-License-Identifier: Apache-2.0
// What differs between the kinds of devices a session may run on. All else speaks to
// device::Device, through the pool.
//
// Noun: SessionDevice.
#pragma once

#include <memory>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "plimsoll/device/device.h"
#include "plimsoll/pool/block.h"
#include "plimsoll/session.h"

namespace plimsoll::detail {

// Threads: the session's lock.
class SessionDevice {
 public:
  // Errors: Unsupported (a kind of device whose memory is not held, or without a back end),
  // InvalidArgument (an index that does not exist).
  static std::unique_ptr<SessionDevice> make(const SessionOptions& options);
  SessionDevice() = default;
  SessionDevice(const SessionDevice&) = delete;
  SessionDevice& operator=(const SessionDevice&) = delete;
  virtual ~SessionDevice() = default;

  // With its index, but for the CPU.
  virtual c10::Device where() const = 0;
  virtual device::Device& device() = 0;
  // On which side of the copies LibTorch's own memory for this device is.
  virtual pool::Side side() const = 0;

  // The allocator that asks the arena first, and LibTorch's own behind it.
  virtual c10::Allocator& allocator() = 0;
  virtual const c10::Allocator& stock_allocator() const = 0;
  // Says whether memory with this deleter is LibTorch's own for this device.
  virtual bool owns_deleter(c10::DeleterFnPtr deleter) const = 0;
  // Memory of LibTorch's own, outside of every arena. Errors: c10::OutOfMemoryError.
  virtual c10::DataPtr allocate_outside(std::size_t bytes) = 0;

  // Copies between the arena and LibTorch's own memory, in the order of Queue::kCompute.
  // Errors: DeviceError.
  void copy(void* destination, const void* source, std::int64_t bytes);
  // Called before the first submission of a call of the program's: what this thread's current
  // stream has been given comes before it. Errors: DeviceError.
  virtual void follow_current_stream() = 0;
  // Queue::kCompute uses this memory of LibTorch's own; it is about to be freed.
  virtual void note_use(const c10::DataPtr& memory) = 0;
  // What the stream was given so far comes before what Queue::kCompute is given from now on.
  virtual void join(const c10::Stream& stream) noexcept = 0;
};

// The device with an index: the current one of its kind where it has none. Errors as above.
c10::Device with_index(const c10::Device& device);

// Makes sure that what LibTorch allocates on this kind of device is asked of Plimsoll. Errors:
// Unsupported where an allocator of higher priority stands in front, and as above.
void put_allocator_in_front(c10::DeviceType type);

}  // namespace plimsoll::detail
