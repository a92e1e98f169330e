// SPDX-License-Identifier: Apache-2.0
#include "device_allocator.h"

#include <mutex>
#include <string>

#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "plimsoll/base/error.h"

#include "arena_source.h"
#include "host_allocator.h"

namespace plimsoll::detail {
namespace {

// Blocks go back through a plain function, which has to find its allocator.
std::atomic<DeviceAllocator*> g_installed{nullptr};

c10::DeviceAllocator& stock_allocator(c10::DeviceType type) {
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  if (type != c10::DeviceType::PrivateUse1) {
    throw Unsupported("device " + name +
                      ": its memory is not held by this release; there are the CPU and back ends "
                      "on PrivateUse1");
  }
  if (!c10::impl::hasDeviceGuardImpl(type))
    throw Unsupported("device " + name + ": no back end is registered for it in this process");
  auto* stock = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  if (stock == nullptr || stock->raw_deleter() == nullptr) {
    throw Unsupported("device " + name +
                      ": its allocator is no c10::DeviceAllocator with a raw deleter");
  }
  return *stock;
}

}  // namespace

DeviceAllocator& DeviceAllocator::installed(c10::DeviceType type) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  DeviceAllocator* allocator = g_installed.load(std::memory_order_acquire);
  if (allocator == nullptr) {
    allocator = new DeviceAllocator(type, stock_allocator(type));
    g_installed.store(allocator, std::memory_order_release);
    c10::SetAllocator(type, allocator, kAllocatorPriority);
  }
  if (allocator->type_ != type) {
    throw Unsupported("device " + c10::DeviceTypeName(type, true) + ": this process has " +
                      c10::DeviceTypeName(allocator->type_, true) +
                      " in use already, and there is one kind of device a process");
  }
  return *allocator;
}

DeviceAllocator::DeviceAllocator(c10::DeviceType type, c10::DeviceAllocator& stock)
    : type_(type), guard_(type), stock_(stock) {
  for (c10::DeviceIndex i = 0; i < guard_.deviceCount(); ++i) accounts_.emplace_back();
  HostAllocator::installed();  // knows the arenas' ranges
}

c10::DeleterFnPtr DeviceAllocator::raw_deleter() const { return &DeviceAllocator::release; }

bool DeviceAllocator::owns_deleter(c10::DeleterFnPtr deleter) const {
  return deleter == &DeviceAllocator::release || deleter == stock_.raw_deleter();
}

HeapAccount& DeviceAllocator::account(c10::DeviceIndex device) {
  return accounts_.at(static_cast<std::size_t>(device));
}

c10::DataPtr DeviceAllocator::allocate(std::size_t bytes) {
  ArenaSource* const source = device_source();
  if (source == nullptr || bytes == 0 || source->arena_device() != guard_.getDevice())
    return allocate_outside(bytes);
  void* const address = source->allocate(bytes);
  return {address, address, &DeviceAllocator::release, source->arena_device()};
}

c10::DataPtr DeviceAllocator::allocate_outside(std::size_t bytes) {
  if (bytes == 0) return stock_.allocate(0);
  const c10::Device device = guard_.getDevice();
  HeapAccount::Charge charge(account(device.index()), bytes);
  c10::DataPtr memory = stock_.allocate(bytes);
  if (!charge.is_counted()) return memory;
  void* const address = memory.get();
  TORCH_CHECK(memory.release_context() == address,
              "Plimsoll: the device's allocator gives memory whose context is not its address");
  charge.commit(address);
  return {address, address, &DeviceAllocator::release, device};
}

void DeviceAllocator::recordStream(const c10::DataPtr& pointer, c10::Stream stream) {
  if (pointer.get() == nullptr) return;
  if (ArenaSource* source = HostAllocator::installed().arena_of(pointer.get()))
    source->record_stream(pointer.get(), stream);
  else
    stock_.recordStream(pointer, stream);
}

void DeviceAllocator::release(void* address) {
  if (address == nullptr) return;
  if (ArenaSource* source = HostAllocator::installed().arena_of(address)) {
    source->deallocate(address);
    return;
  }
  DeviceAllocator& self = *g_installed.load(std::memory_order_acquire);
  for (HeapAccount& account : self.accounts_) account.discharge(address);
  self.stock_.raw_deallocate(address);
}

}  // namespace plimsoll::detail
