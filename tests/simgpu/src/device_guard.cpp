// SPDX-License-Identifier: Apache-2.0
// c10's view of the device: current device and streams of each thread, events.
#include "device_guard.h"

#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include "device_memory.h"
#include "mutation_state.h"
#include "runtime.h"

namespace plimsoll::simgpu {
namespace {

thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, kDevices> t_streams{};

std::array<std::atomic<unsigned>, kDevices> g_next_pool_stream{};

c10::DeviceIndex index_of(const c10::Device& device) {
  return device.has_index() ? device.index() : t_device;
}

// c10 keeps an event as a pointer. It owns a reference: an event may be destroyed while streams
// still have to record it or wait for it.
Event& event_of(void* event) { return *static_cast<Event*>(event); }

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return {kType, t_device}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kDevices) t_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(index_of(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(index_of(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device,
                                      bool is_high_priority = false) const override {
    const c10::DeviceIndex index = index_of(device);
    const unsigned next = g_next_pool_stream[static_cast<std::size_t>(index)]++;
    return stream_of(index, 1 + static_cast<int>(next % (kStreamsPerDevice - 1)));
  }
  c10::Stream getNewStream(c10::Device device, int priority = 0) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_current_stream(stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "simgpu: an event of sim:", static_cast<int>(device), " was recorded on ", stream);
    runtime().throw_on_error(stream.device_index());
    if (*event == nullptr) *event = new Event(std::make_shared<EventState>());
    runtime().record(event_of(*event), stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    runtime().throw_on_error(stream.device_index());
    runtime().block(event_of(event), stream);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || runtime().query(event_of(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    if (is_left_out(SyncKind::kEventSynchronize, std::nullopt, event_of(event)->stream)) return;
    runtime().synchronize(event_of(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex device) const override {
    TORCH_CHECK(first != nullptr && second != nullptr, "simgpu: events that were never recorded");
    const std::int64_t ns = event_of(second)->virtual_time.ns - event_of(first)->virtual_time.ns;
    return static_cast<double>(ns) / 1e6;
  }

  bool queryStream(const c10::Stream& stream) const override { return runtime().query(stream); }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (is_left_out(SyncKind::kStreamSynchronize, std::nullopt, stream)) return;
    runtime().synchronize(stream);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    if (is_left_out(SyncKind::kStreamSynchronize, std::nullopt, std::nullopt)) return;
    runtime().synchronize_device(device < 0 ? t_device : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer,
                             const c10::Stream& stream) const override {
    // Through whatever allocator is installed, so that one that wraps ours hears of it.
    c10::getDeviceAllocator(kType)->recordStream(pointer, stream);
  }
};

}  // namespace

c10::DeviceIndex current_device() { return t_device; }

void set_current_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < kDevices,
              "simgpu: there is no device sim:", static_cast<int>(device));
  t_device = device;
}

c10::Stream current_stream(c10::DeviceIndex device) {
  return stream_of(device, t_streams[static_cast<std::size_t>(device)]);
}

c10::Stream exchange_current_stream(const c10::Stream& stream) {
  auto& current = t_streams[static_cast<std::size_t>(stream.device_index())];
  return stream_of(stream.device_index(), std::exchange(current, stream.id()));
}

void register_device_guard() {
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kType)].store(new GuardImpl());
}

}  // namespace plimsoll::simgpu
