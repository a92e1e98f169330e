// SPDX-License-Identifier: Apache-2.0
#include "session_device.h"

#include <string>

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "plimsoll/base/error.h"
#include "plimsoll/device/host_device.h"

#include "device_allocator.h"
#include "host_allocator.h"
#include "operator_threads.h"
#include "stream_device.h"

namespace plimsoll::detail {
namespace {

device::HostDeviceOptions host_device_options(device::FaultPlan* faults) {
  device::HostDeviceOptions options;
  options.faults = faults;
  options.parallel_for = [](std::int64_t count,
                            const std::function<void(std::int64_t, std::int64_t)>& body) {
    on_operator_threads(count, /*grain=*/128 << 10, body);
  };
  return options;
}

class OnHost final : public SessionDevice {
 public:
  explicit OnHost(const SessionOptions& options)
      : device_(host_device_options(options.testing_faults)) {}

  c10::Device where() const override { return c10::DeviceType::CPU; }
  device::Device& device() override { return device_; }
  pool::Side side() const override { return pool::Side::kHost; }
  c10::Allocator& allocator() override { return HostAllocator::installed(); }
  const c10::Allocator& stock_allocator() const override { return *c10::GetDefaultCPUAllocator(); }
  bool owns_deleter(c10::DeleterFnPtr deleter) const override {
    return HostAllocator::installed().owns_deleter(deleter);
  }
  c10::DataPtr allocate_outside(std::size_t bytes) override {
    return HostAllocator::installed().allocate_on_heap(bytes);
  }
  void follow_current_stream() override {}
  void note_use(const c10::DataPtr&) override {}
  void join(const c10::Stream&) noexcept override {}

 private:
  device::HostDevice device_;
};

class OnStreams final : public SessionDevice {
 public:
  explicit OnStreams(const SessionOptions& options)
      : where_(with_index(options.device)),
        allocator_(DeviceAllocator::installed(where_.type())),
        device_(where_, allocator_.stock(), options.testing_faults) {}

  c10::Device where() const override { return where_; }
  device::Device& device() override { return device_; }
  pool::Side side() const override { return pool::Side::kDevice; }
  c10::Allocator& allocator() override { return allocator_; }
  const c10::Allocator& stock_allocator() const override { return allocator_.stock(); }
  bool owns_deleter(c10::DeleterFnPtr deleter) const override {
    return allocator_.owns_deleter(deleter);
  }
  c10::DataPtr allocate_outside(std::size_t bytes) override {
    const c10::DeviceGuard guard(where_);
    return allocator_.allocate_outside(bytes);
  }
  void follow_current_stream() override { device_.follow_current_stream(); }
  void note_use(const c10::DataPtr& memory) override { device_.note_use(memory); }
  void join(const c10::Stream& stream) noexcept override { device_.join(stream); }

 private:
  const c10::Device where_;
  DeviceAllocator& allocator_;
  StreamDevice device_;
};

}  // namespace

void SessionDevice::copy(void* destination, const void* source, std::int64_t bytes) {
  // On the host, memory of LibTorch's own counts as the side below the arena.
  const auto kind = side() == pool::Side::kHost ? device::CopyKind::kHostToDevice
                                                : device::CopyKind::kDeviceToDevice;
  device().copy(destination, source, bytes, kind, device::Queue::kCompute);
}

c10::Device with_index(const c10::Device& device) {
  if (device.is_cpu()) return c10::DeviceType::CPU;
  DeviceAllocator::installed(device.type());  // says where there is no such device
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!device.has_index()) return guard.getDevice();
  if (device.index() >= guard.deviceCount()) {
    throw InvalidArgument("device " + device.str() + ": there are " +
                          std::to_string(guard.deviceCount()) + " of its kind, numbered from 0");
  }
  return device;
}

void put_allocator_in_front(c10::DeviceType type) {
  c10::Allocator* ours = nullptr;
  if (type == c10::DeviceType::CPU) {
    ours = &HostAllocator::installed();
  } else {
    ours = &DeviceAllocator::installed(type);
  }
  if (c10::GetAllocator(type) == ours) return;
  // Of two with the same priority the later one counts.
  c10::SetAllocator(type, ours, kAllocatorPriority);
  if (c10::GetAllocator(type) == ours) return;
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  throw Unsupported("another allocator of priority " + std::to_string(kAllocatorPriority + 1) +
                    " or more is set for device " + name +
                    " (c10::SetCPUAllocator, c10::SetAllocator), so that no allocation would come "
                    "to Plimsoll and no budget could hold; set that one with priority 0, or leave "
                    "it out, and start again");
}

std::unique_ptr<SessionDevice> SessionDevice::make(const SessionOptions& options) {
  if (options.device.is_cpu()) return std::make_unique<OnHost>(options);
  return std::make_unique<OnStreams>(options);
}

}  // namespace plimsoll::detail
