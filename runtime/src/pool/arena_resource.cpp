// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/pool/arena_resource.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"

namespace plimsoll::pool {

ArenaResource::ArenaResource(device::Device& device, std::int64_t bytes)
    : device_(device),
      base_(static_cast<std::byte*>(device.reserve(bytes))),
      ranges_(bytes, device.info().alignment_bytes) {}

ArenaResource::~ArenaResource() { device_.release(); }

void* ArenaResource::allocate(std::int64_t bytes, device::Queue) {
  if (bytes < 0) throw InvalidArgument(fmt::format("an allocation of {} bytes", bytes));
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  std::optional<SegmentId> segment;
  if (bytes <= ranges_.capacity()) {
    reap_done();
    segment = ranges_.allocate(bytes);
    while (!segment && wait_for_oldest()) segment = ranges_.allocate(bytes);
  }
  if (!segment) {
    ++stats_.failures;
    throw DeviceOutOfMemory(
        "the arena has no room",
        {bytes, ranges_.used_bytes(), ranges_.capacity(), ranges_.largest_free_bytes()});
  }
  const std::int64_t offset = ranges_.offset(*segment);
  try {
    in_use_.emplace(offset, *segment);
    pending_.reserve(in_use_.size() + pending_.size());  // so that freeing cannot fail
  } catch (...) {
    in_use_.erase(offset);
    ranges_.deallocate(*segment);
    throw;
  }
  ++stats_.allocations;
  ++stats_.live_blocks;
  stats_.allocated_bytes += bytes;
  stats_.live_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  return base_ + offset;
}

void ArenaResource::deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(static_cast<std::byte*>(pointer) - base_);
  if (found == in_use_.end()) return;
  const SegmentId segment = found->second;
  in_use_.erase(found);
  --stats_.live_blocks;
  stats_.live_bytes -= bytes;
  device::Event event;
  try {
    event = device_.record(queue);
  } catch (...) {
    // Without an event nobody knows when the queue is done with the range: it is not reused.
    ++stats_.failures;
    return;
  }
  if (device_.done(event))
    ranges_.deallocate(segment);
  else
    pending_.push_back({segment, event});
}

void ArenaResource::reap_done() noexcept {
  std::erase_if(pending_, [&](const Pending& pending) {
    if (!device_.done(pending.event)) return false;
    ranges_.deallocate(pending.segment);
    return true;
  });
}

// False where nothing is pending. A copy that failed is over as well.
bool ArenaResource::wait_for_oldest() noexcept {
  if (pending_.empty()) return false;
  try {
    device_.synchronize(pending_.front().event);
  } catch (...) {
    ++stats_.failures;
  }
  ranges_.deallocate(pending_.front().segment);
  pending_.erase(pending_.begin());
  return true;
}

ResourceStatistics ArenaResource::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void ArenaResource::check_invariants() const {
  const std::lock_guard lock(mutex_);
  ranges_.check_invariants();
  std::int64_t used = 0;
  for (const auto& [offset, segment] : in_use_) used += ranges_.bytes(segment);
  for (const Pending& pending : pending_) used += ranges_.bytes(pending.segment);
  PLIMSOLL_CHECK(used <= ranges_.used_bytes(), "the arena's ranges and its blocks disagree");
  PLIMSOLL_CHECK(static_cast<std::int64_t>(in_use_.size()) == stats_.live_blocks,
                 "live blocks are miscounted");
}

}  // namespace plimsoll::pool
