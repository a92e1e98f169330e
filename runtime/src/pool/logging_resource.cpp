// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/logging_resource.h"

#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::pool {

LoggingResource::LoggingResource(MemoryResource& upstream, Sink sink)
    : upstream_(upstream), sink_(std::move(sink)) {
  if (!sink_) throw InvalidArgument("a logging resource needs a sink");
}

void LoggingResource::tell(ResourceEvent event) {
  const std::lock_guard lock(mutex_);
  event.number = number_++;
  sink_(event);
}

void* LoggingResource::allocate(std::int64_t bytes, device::Queue queue) {
  void* pointer = nullptr;
  try {
    pointer = upstream_.allocate(bytes, queue);
  } catch (const DeviceOutOfMemory&) {
    tell({ResourceEvent::Kind::kRefusal, 0, nullptr, bytes, queue});
    throw;
  }
  if (pointer != nullptr) tell({ResourceEvent::Kind::kAllocate, 0, pointer, bytes, queue});
  return pointer;
}

void LoggingResource::deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept {
  if (pointer == nullptr) return;
  // Told first: another thread may be given the same memory right after.
  tell({ResourceEvent::Kind::kDeallocate, 0, pointer, bytes, queue});
  upstream_.deallocate(pointer, bytes, queue);
}

std::string to_string(const ResourceEvent& event) {
  static constexpr const char* kKinds[] = {"allocate", "deallocate", "refusal"};
  static constexpr const char* kQueues[] = {"compute", "copy_out", "copy_in"};
  return fmt::format("{} {} {} {}", event.number, kKinds[static_cast<std::size_t>(event.kind)],
                     event.bytes, kQueues[static_cast<std::size_t>(event.queue)]);
}

}  // namespace plimsoll::pool
