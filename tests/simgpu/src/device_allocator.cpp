// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include <c10/util/Exception.h>

#include "device_memory.h"

namespace plimsoll::simgpu {
namespace {

void delete_block(void* context) {
  DeviceMemory* memory = memory_holding(context);
  if (memory != nullptr) memory->free(static_cast<std::byte*>(context));
}

}  // namespace

c10::DataPtr DeviceAllocator::allocate(std::size_t bytes) {
  const c10::DeviceIndex device = current_device();
  const c10::Device where(kType, device);
  if (bytes == 0) return {nullptr, where};
  std::byte* begin = device_memory(device).allocate(bytes, current_stream(device).id());
  // The block's own address is the context, which raw_allocate asks for.
  return {begin, begin, &delete_block, where};
}

c10::DeleterFnPtr DeviceAllocator::raw_deleter() const { return &delete_block; }

void DeviceAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  const DeviceMemory* source = memory_holding(from);
  const DeviceMemory* target = memory_holding(to);
  TORCH_CHECK(source != nullptr && source == target,
              "simgpu: copy_data is for one device's memory");
  const auto address = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  };
  const RangeAccess accesses[] = {{{address(from), address(from) + bytes}, false},
                                  {{address(to), address(to) + bytes}, true}};
  OperationCost cost;
  cost.kind = TimedKind::kCopyOnDevice;
  cost.bytes = static_cast<std::int64_t>(bytes);
  auto run = [to = target->alias(to), from = source->alias(from), bytes] {
    std::memmove(to, from, bytes);
  };
  const c10::DeviceIndex device = source == &device_memory(0) ? 0 : 1;
  runtime().launch(current_stream(device), {"copy_data", accesses, cost, std::move(run)});
}

void DeviceAllocator::emptyCache(c10::MempoolId_t pool) { empty_cache(); }

void DeviceAllocator::recordStream(const c10::DataPtr& pointer, c10::Stream stream) {
  DeviceMemory* memory = memory_holding(pointer.get());
  if (memory != nullptr) memory->record_stream(static_cast<std::byte*>(pointer.get()), stream);
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  const MemoryCounts counts = memory_counts(device);
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocated_bytes[0].current = counts.live_bytes;
  stats.allocated_bytes[0].peak = counts.peak_bytes;
  stats.active_bytes[0].current = counts.live_bytes;
  stats.reserved_bytes[0].current = counts.reserved_bytes;
  stats.num_ooms = counts.out_of_memory;
  return stats;
}

void DeviceAllocator::resetPeakStats(c10::DeviceIndex device) { reset_peak(device); }

void empty_cache() {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device)
    device_memory(device).empty_cache();
}

MemoryCounts memory_counts(c10::DeviceIndex device) { return device_memory(device).counts(); }

void reset_peak(c10::DeviceIndex device) { device_memory(device).reset_peak(); }

}  // namespace plimsoll::simgpu
