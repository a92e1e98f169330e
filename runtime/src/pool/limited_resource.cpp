// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/limited_resource.h"

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

#include "pool/atomic_peak.h"

namespace plimsoll::pool {

LimitedResource::LimitedResource(MemoryResource& upstream, std::int64_t limit_bytes)
    : upstream_(upstream), limit_bytes_(limit_bytes) {
  if (limit_bytes <= 0)
    throw InvalidArgument(fmt::format("a limit of {} bytes; more than 0 needed", limit_bytes));
}

void* LimitedResource::allocate(std::int64_t bytes, device::Queue queue) {
  if (bytes <= 0) return upstream_.allocate(bytes, queue);
  const std::int64_t charge = align_up(bytes, upstream_.alignment_bytes());
  std::int64_t charged = charged_.load(std::memory_order_relaxed);
  do {
    if (charge > limit_bytes_ - charged)
      throw DeviceOutOfMemory("the limit is reached",
                              {bytes, charged, limit_bytes_, limit_bytes_ - charged});
  } while (!charged_.compare_exchange_weak(charged, charged + charge, std::memory_order_relaxed));
  try {
    void* const pointer = upstream_.allocate(bytes, queue);
    raise_peak(peak_, charged + charge);
    return pointer;
  } catch (...) {
    charged_.fetch_sub(charge, std::memory_order_relaxed);
    throw;
  }
}

void LimitedResource::deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept {
  if (pointer == nullptr) return;
  upstream_.deallocate(pointer, bytes, queue);
  const std::int64_t alignment = upstream_.alignment_bytes();
  charged_.fetch_sub((bytes + alignment - 1) & ~(alignment - 1), std::memory_order_relaxed);
}

}  // namespace plimsoll::pool
