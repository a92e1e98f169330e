// SPDX-License-Identifier: Apache-2.0
#include "device_hooks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/util/Exception.h>

#include "device_generator.h"
#include "device_memory.h"
#include "operator_runner.h"
#include "pinned_memory.h"

namespace plimsoll::simgpu {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = current_device();
    set_current_device(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device = -1) const override {
    return new_generator(device);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const DeviceMemory* memory = memory_holding(data);
    TORCH_CHECK(memory != nullptr, "simgpu: ", data, " is no device address");
    return {kType, static_cast<c10::DeviceIndex>(memory == &device_memory(0) ? 0 : 1)};
  }
  bool isPinnedPtr(const void* data) const override { return pinned_memory().contains(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getHostAllocator(kType); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    grow_storage(storage, bytes);
  }
};

}  // namespace

void register_hooks() {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  static auto* const pinned = new PinnedAllocator();
  at::setHostAllocator(kType, pinned);
}

}  // namespace plimsoll::simgpu
