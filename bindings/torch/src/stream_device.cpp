// SPDX-License-Identifier: Apache-2.0
#include "stream_device.h"

#include <algorithm>
#include <string>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::detail {
namespace {

using device::CopyKind;
using device::FaultKind;
using device::Queue;

// What LibTorch's own allocator for CUDA aligns to.
constexpr std::int64_t kAlignmentBytes = 512;
// A slide over less than its length goes in pieces of the distance; in more pieces than this it
// goes through host memory instead.
constexpr std::int64_t kMostPieces = 32;
constexpr std::int64_t kBounceBytes = mib(4);
// Events kept of a queue; for an older one the oldest of these stands in, which comes later.
constexpr std::size_t kMostEvents = 256;

constexpr std::array<Queue, device::kQueueCount> kQueues = {Queue::kCompute, Queue::kCopyOut,
                                                            Queue::kCopyIn};

std::size_t index_of(Queue queue) { return static_cast<std::size_t>(queue); }

// While it lives, this thread's operators go straight to the back ends: no interposer, no autograd,
// no mode of the program's.
class BackEndsOnly {
 public:
  BackEndsOnly() : saved_(c10::impl::tls_local_dispatch_key_set()) {
    c10::impl::LocalDispatchKeySet keys = saved_;
    keys.included_ = c10::DispatchKeySet();
    keys.excluded_ = c10::DispatchKeySet(c10::DispatchKeySet::FULL) -
                     c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
    c10::impl::_force_tls_local_dispatch_key_set(keys);
  }
  ~BackEndsOnly() { c10::impl::_force_tls_local_dispatch_key_set(saved_); }
  BackEndsOnly(const BackEndsOnly&) = delete;
  BackEndsOnly& operator=(const BackEndsOnly&) = delete;

 private:
  const c10::impl::LocalDispatchKeySet saved_;
};

at::Tensor bytes_at(const void* address, std::int64_t bytes, const c10::Device& device) {
  return at::for_blob(const_cast<void*>(address), {bytes})
      .options(at::TensorOptions().dtype(at::kByte).device(device))
      .target_device(device)
      .make_tensor();
}

template <typename Clock>
void join_clock(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

// Turns LibTorch's errors into the pool's.
template <typename Body>
auto checked(const char* call, const Body& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    throw DeviceError(std::string(call) + ": " + error.what_without_backtrace());
  }
}

}  // namespace

StreamDevice::StreamDevice(c10::Device where, c10::Allocator& memory, device::FaultPlan* faults)
    : where_(where),
      guard_(where.type()),
      memory_(memory),
      faults_(faults),
      compute_(guard_.getStream(where)),
      copy_out_(guard_.getStreamFromGlobalPool(where)),
      copy_in_(guard_.getStreamFromGlobalPool(where)),
      used_{compute_, copy_out_, copy_in_} {
  info_.name = where.str();
  info_.alignment_bytes = kAlignmentBytes;
  info_.is_compute_synchronous = false;
  info_.is_host_addressable = false;
}

StreamDevice::~StreamDevice() {
  release();
  end_freed_host(false);
  // What copies may still use is LibTorch's to keep until they are done; waiting is not for
  // deleters.
  for (const FreedHost& freed : freed_host_) {
    try {
      for (const c10::Stream& stream : used_) {
        at::getHostAllocator(where_.type())
            ->record_event(freed.memory.get(), freed.memory.get_context(), stream);
      }
    } catch (const std::exception&) {
      wait_for_all();
    }
  }
}

void StreamDevice::strike(FaultKind kind, const char* call) const {
  if (faults_ != nullptr && faults_->strikes(kind))
    throw DeviceError(std::string(call) + " failed: injected fault of kind " +
                      fault_kind_name(kind));
}

c10::Stream& StreamDevice::stream_of(Queue queue) {
  switch (queue) {
    case Queue::kCompute:
      return compute_;
    case Queue::kCopyOut:
      return copy_out_;
    case Queue::kCopyIn:
      return copy_in_;
  }
  return compute_;
}

void* StreamDevice::reserve(std::int64_t bytes) {
  if (bytes <= 0)
    throw InvalidArgument("an arena of " + std::to_string(bytes) + " bytes; more than 0 needed");
  if (arena_) throw InvalidArgument("the device has an arena already");
  strike(FaultKind::kReserve, "reserving the arena");
  try {
    const c10::DeviceGuard device(where_);
    arena_ = memory_.allocate(static_cast<std::size_t>(bytes));
  } catch (const c10::Error& error) {
    throw DeviceOutOfMemory(
        std::string("the device has no room for the arena: ") + error.what_without_backtrace(),
        {bytes, 0, bytes, 0});
  }
  return arena_.get();
}

// Without waiting, as a tensor's deleter may be what ends the arena: LibTorch's allocator keeps it
// until the streams that were used are through with it.
void StreamDevice::release() noexcept {
  if (!arena_) return;
  try {
    for (const c10::Stream& stream : used_) guard_.recordDataPtrOnStream(arena_, stream);
  } catch (const std::exception&) {
    wait_for_all();
  }
  arena_.clear();
}

void StreamDevice::wait_for_all() noexcept {
  for (const Queue queue : kQueues) wait_for(queue);
}

void StreamDevice::wait_for(Queue queue) noexcept {
  try {
    stream_of(queue).synchronize();
  } catch (const c10::Error&) {
    // The device is broken; nothing runs on it any more.
  }
}

// --- Copies -------------------------------------------------------------------------------------

void StreamDevice::submit(void* destination, const void* source, std::int64_t bytes, CopyKind kind,
                          const c10::Stream& stream) {
  if (faults_ != nullptr && kind != CopyKind::kDeviceToDevice &&
      faults_->strikes(kind == CopyKind::kDeviceToHost ? FaultKind::kLateCopyOut
                                                       : FaultKind::kLateCopyIn)) {
    return;
  }
  const c10::Device host(c10::DeviceType::CPU);
  const BackEndsOnly back_ends;
  const c10::StreamGuard on_stream(stream);
  at::Tensor to = bytes_at(destination, bytes, kind == CopyKind::kDeviceToHost ? host : where_);
  to.copy_(bytes_at(source, bytes, kind == CopyKind::kHostToDevice ? host : where_),
           /*non_blocking=*/true);
}

std::byte* StreamDevice::bounce() {
  if (!bounce_)
    bounce_ = at::getHostAllocator(where_.type())->allocate(static_cast<std::size_t>(kBounceBytes));
  return static_cast<std::byte*>(bounce_.get());
}

// Where the ranges overlap, pieces as long as the distance do not, nor do two halves of a way
// through host memory; the order keeps a source from being written before it is read.
void StreamDevice::slide(std::byte* to, const std::byte* from, std::int64_t bytes,
                         const c10::Stream& stream) {
  const std::int64_t distance = to > from ? to - from : from - to;
  const bool bounces = bytes > kMostPieces * distance;
  const std::int64_t piece = bounces ? kBounceBytes : distance;
  for (std::int64_t done = 0; done < bytes; done += piece) {
    const std::int64_t length = std::min(piece, bytes - done);
    const std::int64_t place = to < from ? done : bytes - done - length;
    if (bounces) {
      submit(bounce(), from + place, length, CopyKind::kDeviceToHost, stream);
      submit(to + place, bounce(), length, CopyKind::kHostToDevice, stream);
    } else {
      submit(to + place, from + place, length, CopyKind::kDeviceToDevice, stream);
    }
  }
}

device::Event StreamDevice::copy(void* destination, const void* source, std::int64_t bytes,
                                 CopyKind kind, Queue queue) {
  strike(device::copy_fault(kind), "submitting a copy");
  try {
    return submit_and_mark(destination, source, bytes, kind, queue);
  } catch (...) {
    // A part may have been submitted: over before anybody uses the ranges otherwise.
    wait_for(queue);
    throw;
  }
}

device::Event StreamDevice::submit_and_mark(void* destination, const void* source,
                                            std::int64_t bytes, CopyKind kind, Queue queue) {
  return checked("submitting a copy", [&] {
    if (kind == CopyKind::kDeviceToDevice)
      slide(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), bytes,
            stream_of(queue));
    else
      submit(destination, source, bytes, kind, stream_of(queue));
    const device::Event end = next_ticket(queue);
    if (queue != Queue::kCompute) record_end(queue);  // somebody will wait for just this copy
    return end;
  });
}

void StreamDevice::copy_blocking(void* destination, const void* source, std::int64_t bytes,
                                 CopyKind kind) {
  synchronize(copy(destination, source, bytes, kind, Queue::kCompute));
}

void StreamDevice::fill(void* destination, std::int64_t bytes, std::uint8_t pattern) {
  checked("filling memory", [&] {
    const BackEndsOnly back_ends;
    const c10::StreamGuard on_stream(compute_);
    bytes_at(destination, bytes, where_).fill_(pattern);
  });
}

// --- Order --------------------------------------------------------------------------------------

device::Event StreamDevice::next_ticket(Queue queue) noexcept {
  const std::lock_guard lock(events_mutex_);
  return {queue, ++line(queue).last_ticket};
}

// Records an event at the queue's present end.
StreamDevice::RecordedEvent StreamDevice::record_end(Queue queue) {
  RecordedEvent recorded;
  recorded.event = std::make_shared<c10::Event>(where_.type());
  recorded.event->record(stream_of(queue));
  const std::lock_guard lock(events_mutex_);
  Line& of_queue = line(queue);
  recorded.ticket = of_queue.last_ticket;
  recorded.after = of_queue.after;
  recorded.after[index_of(queue)] = recorded.ticket;
  of_queue.latest.push_back(recorded);
  if (of_queue.latest.size() > kMostEvents) of_queue.latest.pop_front();
  return recorded;
}

device::Event StreamDevice::record(Queue queue) { return next_ticket(queue); }

// The first recorded event that comes no earlier; none where it is known to have happened, or where
// none is recorded yet.
std::optional<StreamDevice::RecordedEvent> StreamDevice::find(const device::Event& event) const {
  const std::lock_guard lock(events_mutex_);
  const std::deque<RecordedEvent>& latest = line(event.queue).latest;
  if (event.ticket <= line(event.queue).known_done) return std::nullopt;
  const auto found = std::lower_bound(
      latest.begin(), latest.end(), event.ticket,
      [](const RecordedEvent& one, std::uint64_t ticket) { return one.ticket < ticket; });
  return found == latest.end() ? std::nullopt : std::optional(*found);
}

// None where it is known to have happened.
std::optional<StreamDevice::RecordedEvent> StreamDevice::event_after(const device::Event& event) {
  if (std::optional<RecordedEvent> found = find(event)) return found;
  {
    const std::lock_guard lock(events_mutex_);
    if (event.ticket <= line(event.queue).known_done) return std::nullopt;
  }
  strike(FaultKind::kRecord, "recording an event");
  return record_end(event.queue);
}

void StreamDevice::wait(Queue queue, const device::Event& event) {
  strike(FaultKind::kWait, "waiting for an event");
  if (event.queue == queue) return;
  {
    const std::lock_guard lock(events_mutex_);
    if (line(queue).after[index_of(event.queue)] >= event.ticket) return;
  }
  checked("waiting for an event", [&] {
    const std::optional<RecordedEvent> found = event_after(event);
    if (!found) return;
    found->event->block(stream_of(queue));
    const std::lock_guard lock(events_mutex_);
    join_clock(line(queue).after, found->after);
  });
}

bool StreamDevice::done(const device::Event& event) const noexcept {
  const std::optional<RecordedEvent> found = find(event);
  if (!found) {
    const std::lock_guard lock(events_mutex_);
    return event.ticket <= line(event.queue).known_done;
  }
  try {
    if (!found->event->query()) return false;
  } catch (const c10::Error&) {
    // The device is broken: nothing will come after it.
  }
  note_done(*found);
  return true;
}

// What is submitted from now on, to any queue, comes after it and after all that it came after.
void StreamDevice::note_done(const RecordedEvent& recorded) const noexcept {
  const std::lock_guard lock(events_mutex_);
  for (Line& any : lines_) join_clock(any.after, recorded.after);
  for (std::size_t i = 0; i < lines_.size(); ++i)
    lines_[i].known_done = std::max(lines_[i].known_done, recorded.after[i]);
}

void StreamDevice::synchronize(const device::Event& event) {
  checked("waiting for the device", [&] {
    const std::optional<RecordedEvent> found = event_after(event);
    if (!found) return;
    found->event->synchronize();
    note_done(*found);
  });
}

void StreamDevice::follow_current_stream() {
  checked("going over to another stream", [&] {
    const c10::Stream current = guard_.getStream(where_);
    if (current == compute_) return;
    c10::Event until_now(where_.type());
    until_now.record(compute_);
    until_now.block(current);
    if (std::find(used_.begin(), used_.end(), current) == used_.end()) used_.push_back(current);
    compute_ = current;
  });
}

void StreamDevice::join(const c10::Stream& stream) noexcept {
  if (stream == compute_) return;
  try {
    c10::Event until_now(where_.type());
    until_now.record(stream);
    until_now.block(compute_);
  } catch (const c10::Error&) {
    // The device is broken; nothing runs on it any more.
  }
}

void StreamDevice::note_use(const c10::DataPtr& memory) {
  checked("using memory on a stream", [&] { guard_.recordDataPtrOnStream(memory, compute_); });
}

// --- Host memory --------------------------------------------------------------------------------

void* StreamDevice::allocate_host(std::int64_t bytes) {
  // What was freed counts until no copy uses it any more.
  end_freed_host(!freed_host_.empty());
  for (const bool is_last_try : {false, true}) {
    try {
      if (faults_ != nullptr && faults_->strikes(FaultKind::kAllocateHost)) {
        throw HostOutOfMemory("allocating host memory failed: injected fault of kind allocate_host",
                              {bytes, 0, 0, 0});
      }
      c10::DataPtr memory =
          at::getHostAllocator(where_.type())->allocate(static_cast<std::size_t>(bytes));
      void* const pointer = memory.get();
      host_memory_[pointer] = std::move(memory);
      return pointer;
    } catch (const c10::Error& error) {
      if (is_last_try)
        throw HostOutOfMemory(
            std::string("the machine has no pinned memory: ") + error.what_without_backtrace(),
            {bytes, 0, 0, 0});
    }
    end_freed_host(true);
  }
  return nullptr;  // not reached
}

// Kept until no copy can still be using it: freeing must not wait, a deleter may be what frees.
void StreamDevice::free_host(void* pointer, std::int64_t bytes) noexcept {
  const auto found = host_memory_.find(pointer);
  if (found == host_memory_.end()) return;
  FreedHost freed{std::move(found->second), {}};
  host_memory_.erase(found);
  try {
    for (const Queue queue : kQueues) {
      freed.used_until[index_of(queue)] = next_ticket(queue);
      record_end(queue);
    }
    freed_host_.push_back(std::move(freed));
  } catch (const std::exception&) {
    wait_for_all();
  }
}

void StreamDevice::end_freed_host(bool waits) noexcept {
  if (waits) wait_for_all();
  std::erase_if(freed_host_, [&](const FreedHost& freed) {
    return waits || std::all_of(freed.used_until.begin(), freed.used_until.end(),
                                [&](const device::Event& event) { return done(event); });
  });
}

}  // namespace plimsoll::detail
