// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/device/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

#include "device/copy_engine.h"
#include "device/streaming_copy.h"

namespace plimsoll::device {
namespace {

constexpr std::int64_t kHugePageBytes = 2 << 20;

// Maps zeroed pages, or returns null. Large pages keep the cost of first touches low.
void* map_pages(std::int64_t bytes) {
  void* pages = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  if (bytes >= 2 * kHugePageBytes)
    madvise(pages, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a wish; failure is harmless
  return pages;
}

// The next of a sequence of pseudo-random numbers (splitmix64; Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", 2014).
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

HostDevice::HostDevice(HostDeviceOptions options) : options_(std::move(options)) {
  if (options_.alignment_bytes < 1 ||
      !std::has_single_bit(static_cast<std::uint64_t>(options_.alignment_bytes)))
    throw InvalidArgument(
        fmt::format("an alignment of {} bytes is no power of two", options_.alignment_bytes));
  if (options_.threads < 1)
    throw InvalidArgument(fmt::format("{} copy threads; at least 1 is needed", options_.threads));
  info_.name = "host";
  info_.alignment_bytes = options_.alignment_bytes;
  info_.is_compute_synchronous = true;
  info_.is_host_addressable = options_.is_host_addressable;
}

HostDevice::~HostDevice() { release(); }

void HostDevice::strike(FaultKind kind, const char* call) const {
  if (options_.faults != nullptr && options_.faults->strikes(kind))
    throw DeviceError(
        fmt::format("{} failed: injected fault of kind {}", call, fault_kind_name(kind)));
}

void* HostDevice::reserve(std::int64_t bytes) {
  if (bytes <= 0)
    throw InvalidArgument(fmt::format("an arena of {} bytes; more than 0 needed", bytes));
  if (arena_ != nullptr) throw InvalidArgument("the device has an arena already");
  strike(FaultKind::kReserve, "reserving the arena");
  void* arena = map_pages(bytes);
  if (arena == nullptr)
    throw DeviceOutOfMemory(fmt::format("cannot map the arena: {}", std::strerror(errno)),
                            {bytes, 0, bytes, 0});
  arena_ = arena;
  arena_bytes_ = bytes;
  return arena_;
}

void HostDevice::release() noexcept {
  for (const auto& engine : engines_)
    if (engine) engine->drain();
  if (arena_ == nullptr) return;
  munmap(arena_, static_cast<std::size_t>(arena_bytes_));
  arena_ = nullptr;
  arena_bytes_ = 0;
}

HostDevice::CopyEngine& HostDevice::engine(Queue queue) {
  auto& engine = engines_[static_cast<std::size_t>(queue)];
  if (!engine) engine = std::make_unique<CopyEngine>();
  return *engine;
}

Event HostDevice::copy(void* destination, const void* source, std::int64_t bytes, CopyKind kind,
                       Queue queue) {
  if (queue == Queue::kCompute) {
    copy_blocking(destination, source, bytes, kind);
    return {};
  }
  strike(copy_fault(kind), "submitting a copy");
  CopyEngine::Copy copy{destination, source, bytes, 0, false};
  if (options_.delay_ns > 0)
    copy.delay_ns = static_cast<std::int64_t>(next_random(options_.delay_seed) %
                                              static_cast<std::uint64_t>(options_.delay_ns));
  if (options_.faults != nullptr && kind != CopyKind::kDeviceToDevice)
    copy.fails = options_.faults->strikes(kind == CopyKind::kDeviceToHost ? FaultKind::kLateCopyOut
                                                                          : FaultKind::kLateCopyIn);
  return {queue, engine(queue).submit(copy)};
}

void HostDevice::copy_blocking(void* destination, const void* source, std::int64_t bytes,
                               CopyKind kind) {
  strike(copy_fault(kind), "copying");
  if (bytes == 0) return;  // a block without bytes may have no address below
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const std::int64_t distance = to > from ? to - from : from - to;
  if (bytes < options_.parallel_copy_bytes || distance < options_.parallel_copy_bytes) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  // Where the ranges overlap, pieces as long as the distance do not; their order keeps a source
  // from being written before it is read.
  for (std::int64_t done = 0; done < bytes; done += distance) {
    const std::int64_t length = std::min(distance, bytes - done);
    const std::int64_t place = to < from ? done : bytes - done - length;
    copy_parallel(to + place, from + place, length, kind);
  }
}

void HostDevice::copy_parallel(std::byte* to, const std::byte* from, std::int64_t bytes,
                               CopyKind kind) {
  const std::function<void(std::int64_t, std::int64_t)> body = [&](std::int64_t begin,
                                                                   std::int64_t end) {
    // What comes in is read at once and is welcome in the caches. What leaves is not, and what
    // slides is idle.
    if (kind == CopyKind::kHostToDevice)
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    else
      copy_streaming(to + begin, from + begin, end - begin);
  };
  if (options_.parallel_for) {
    options_.parallel_for(bytes, body);
    return;
  }
  if (!workers_) workers_ = std::make_unique<Workers>(options_.threads - 1);
  workers_->run(bytes, body);
}

void HostDevice::fill(void* destination, std::int64_t bytes, std::uint8_t pattern) {
  std::memset(destination, pattern, static_cast<std::size_t>(bytes));
}

Event HostDevice::record(Queue queue) {
  strike(FaultKind::kRecord, "recording an event");
  if (queue == Queue::kCompute) return {};
  return {queue, engine(queue).record()};
}

void HostDevice::wait(Queue queue, const Event& event) {
  strike(FaultKind::kWait, "waiting for an event");
  if (done(event) || event.queue == queue) return;
  if (queue == Queue::kCompute) {
    engine(event.queue).wait_for(event.ticket);
    return;
  }
  engine(queue).submit_wait(engine(event.queue), event.ticket);
}

bool HostDevice::done(const Event& event) const noexcept {
  if (event.ticket == 0) return true;
  const auto& engine = engines_[static_cast<std::size_t>(event.queue)];
  return engine != nullptr && engine->reached(event.ticket);
}

void HostDevice::synchronize(const Event& event) {
  if (event.ticket == 0) return;
  const auto& engine = engines_[static_cast<std::size_t>(event.queue)];
  if (engine == nullptr || !engine->wait_for(event.ticket))
    throw DeviceError("a queued copy failed half-way: injected fault of a late kind");
}

void* HostDevice::allocate_host(std::int64_t bytes) {
  if (options_.faults != nullptr && options_.faults->strikes(FaultKind::kAllocateHost))
    throw HostOutOfMemory("allocating host memory failed: injected fault of kind allocate_host",
                          {bytes, 0, 0, 0});
  void* pages = map_pages(bytes);
  if (pages == nullptr)
    throw HostOutOfMemory(fmt::format("the machine has no host memory: {}", std::strerror(errno)),
                          {bytes, 0, 0, 0});
  return pages;
}

void HostDevice::free_host(void* pointer, std::int64_t bytes) noexcept {
  if (pointer != nullptr) munmap(pointer, static_cast<std::size_t>(bytes));
}

}  // namespace plimsoll::device
