// SPDX-License-Identifier: Apache-2.0
#include "pinned_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <c10/util/Exception.h>

#include "mutation_state.h"

namespace plimsoll::simgpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::int64_t kQuarantineBytes = std::int64_t{64} << 20;
constexpr int kPoison = 0xFF;

ByteRange range_of(const std::byte* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return {address, address + bytes};
}

void delete_pinned(void* context) { pinned_memory().free(static_cast<std::byte*>(context)); }

}  // namespace

// Never destroyed: pinned tensors may outlive every other object.
PinnedMemory& pinned_memory() {
  static auto* const memory = new PinnedMemory();
  return *memory;
}

std::byte* PinnedMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  finish_deferred();
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  auto* begin = static_cast<std::byte*>(std::aligned_alloc(kPage, rounded));
  TORCH_CHECK_WITH(OutOfMemoryError, begin != nullptr, "simgpu: no ", rounded,
                   " bytes of pinned memory");
  if (runtime().options().poisons) std::memset(begin, kPoison, rounded);
  live_[begin] = {rounded, {}};
  return begin;
}

void PinnedMemory::free(std::byte* begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(begin);
  TORCH_INTERNAL_ASSERT(found != live_.end(), "simgpu: freed what is not pinned");
  Freed freed{begin, std::move(found->second)};
  live_.erase(found);
  if (freed.range.users.empty()) return retire(freed, {});
  deferred_.push_back(std::move(freed));
}

// Poisons on the host, at once: whatever still copies from it copies poison.
void PinnedMemory::retire(const Freed& freed, std::span<const VectorClock> finished) noexcept {
  runtime().access_from_host("freeing pinned memory", range_of(freed.begin, freed.range.bytes),
                             finished);
  if (runtime().options().poisons) std::memset(freed.begin, kPoison, freed.range.bytes);
  quarantined_.push_back(freed);
  quarantined_bytes_ += static_cast<std::int64_t>(freed.range.bytes);
  if (quarantined_bytes_ <= kQuarantineBytes) return;
  runtime().drain();
  while (quarantined_bytes_ > kQuarantineBytes / 2 && !quarantined_.empty()) {
    const Freed oldest = quarantined_.front();
    quarantined_.pop_front();
    quarantined_bytes_ -= static_cast<std::int64_t>(oldest.range.bytes);
    runtime().forget(range_of(oldest.begin, oldest.range.bytes));
    std::free(oldest.begin);
  }
}

void PinnedMemory::finish_deferred() {
  const auto is_finished = [](const Freed& freed) {
    return std::all_of(freed.range.users.begin(), freed.range.users.end(), [](const Event& event) {
      return runtime().look_at(event, false).has_value();
    });
  };
  const auto unfinished = std::stable_partition(deferred_.begin(), deferred_.end(), is_finished);
  for (auto freed = deferred_.begin(); freed != unfinished; ++freed) {
    // Its copies are known to be done, for these bytes alone.
    std::vector<VectorClock> finished;
    for (const Event& event : freed->range.users) {
      finished.push_back(runtime().look_at(event, true).value());
    }
    freed->range.users.clear();
    retire(*freed, finished);
  }
  deferred_.erase(deferred_.begin(), unfinished);
}

bool PinnedMemory::record(void* begin, void* context, const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  auto found = live_.find(static_cast<std::byte*>(context));
  if (found == live_.end()) found = live_.find(static_cast<std::byte*>(begin));
  if (found == live_.end()) return false;
  if (!runtime().options().guards_pinned_frees) return true;
  if (is_left_out(SyncKind::kPinnedRecord, stream, std::nullopt)) return true;
  auto& users = found->second.users;
  users.erase(std::remove_if(
                  users.begin(), users.end(),
                  [](const Event& event) { return runtime().look_at(event, false).has_value(); }),
              users.end());
  users.push_back(std::make_shared<EventState>());
  runtime().record(users.back(), stream);
  return true;
}

bool PinnedMemory::contains(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto* at = static_cast<const std::byte*>(address);
  const auto after = live_.upper_bound(const_cast<std::byte*>(at));
  if (after == live_.begin()) return false;
  const auto range = std::prev(after);
  return at < range->first + range->second.bytes;
}

std::int64_t PinnedMemory::quarantined_bytes() {
  const std::lock_guard lock(mutex_);
  return quarantined_bytes_;
}

void PinnedMemory::empty_quarantine() {
  runtime().drain();
  const std::lock_guard lock(mutex_);
  finish_deferred();
  for (const Freed& freed : quarantined_) {
    runtime().forget(range_of(freed.begin, freed.range.bytes));
    std::free(freed.begin);
  }
  quarantined_.clear();
  quarantined_bytes_ = 0;
}

c10::DataPtr PinnedAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
  std::byte* begin = pinned_memory().allocate(bytes);
  return {begin, begin, &delete_pinned, c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr PinnedAllocator::raw_deleter() const { return &delete_pinned; }

void PinnedAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  default_copy_data(to, from, bytes);
}

bool PinnedAllocator::record_event(void* pointer, void* context, c10::Stream stream) {
  return pinned_memory().record(pointer, context, stream);
}

void PinnedAllocator::empty_cache() { pinned_memory().empty_quarantine(); }

std::int64_t quarantined_bytes() { return pinned_memory().quarantined_bytes(); }

}  // namespace plimsoll::simgpu
