// SPDX-License-Identifier: Apache-2.0
// Nouns: LoggingResource, ResourceEvent: every call of a resource told to a sink.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "plimsoll/pool/memory_resource.h"

namespace plimsoll::pool {

struct ResourceEvent {
  enum class Kind : std::uint8_t { kAllocate, kDeallocate, kRefusal };
  Kind kind = Kind::kAllocate;
  std::uint64_t number = 0;  // from 0, without gaps
  void* pointer = nullptr;   // null for a refusal
  std::int64_t bytes = 0;
  device::Queue queue = device::Queue::kCompute;
};

// Threads: safe where the upstream is; the sink is called by one thread at a time, in the order of
// the numbers, and must neither throw nor call the resource.
class LoggingResource final : public MemoryResource {
 public:
  using Sink = std::function<void(const ResourceEvent&)>;
  LoggingResource(MemoryResource& upstream, Sink sink);
  void* allocate(std::int64_t bytes, device::Queue queue) override;
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override;
  std::int64_t alignment_bytes() const noexcept override { return upstream_.alignment_bytes(); }
  ResourceStatistics stats() const noexcept override { return upstream_.stats(); }
  std::string name() const override { return "log over " + upstream_.name(); }

 private:
  void tell(ResourceEvent event);

  MemoryResource& upstream_;
  std::mutex mutex_;
  Sink sink_;                 // called under mutex_
  std::uint64_t number_ = 0;  // guarded by mutex_
};

// One line of a log, such as "12 allocate 4096 compute".
std::string to_string(const ResourceEvent& event);

}  // namespace plimsoll::pool
