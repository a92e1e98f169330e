// SPDX-License-Identifier: Apache-2.0
#include "device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include <c10/util/Exception.h>

#include "mutation_state.h"

namespace plimsoll::simgpu {
namespace {

// Far more addresses than bytes, so that the address space never fragments; pages nobody touched
// cost nothing.
constexpr std::size_t kAddressBytes = std::size_t{1} << 36;
constexpr std::size_t kGranule = 512;
constexpr int kPoison = 0xFF;

std::array<DeviceMemory*, kDevices> g_memories{};

std::size_t rounded(std::size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

ByteRange range_of(const Block& block) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block.begin);
  return {begin, begin + block.bytes};
}

}  // namespace

DeviceMemory& device_memory(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < kDevices,
              "simgpu: there is no device sim:", static_cast<int>(device));
  return *g_memories[static_cast<std::size_t>(device)];
}

DeviceMemory* memory_holding(const void* address) {
  for (DeviceMemory* memory : g_memories) {
    if (memory != nullptr && memory->contains(address)) return memory;
  }
  return nullptr;
}

void make_device_memories(std::int64_t capacity_bytes) {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    g_memories[static_cast<std::size_t>(device)] = new DeviceMemory(device, capacity_bytes);
  }
}

DeviceMemory::DeviceMemory(c10::DeviceIndex device, std::int64_t capacity_bytes)
    : device_(device), capacity_bytes_(capacity_bytes) {
  file_ = memfd_create("simgpu", MFD_CLOEXEC);
  TORCH_CHECK(file_ >= 0 && ftruncate(file_, static_cast<off_t>(kAddressBytes)) == 0,
              "simgpu: no memory file: ", std::strerror(errno));
  const auto map = [this](int protection) {
    void* at = mmap(nullptr, kAddressBytes, protection, MAP_SHARED | MAP_NORESERVE, file_, 0);
    TORCH_CHECK(at != MAP_FAILED, "simgpu: no address range: ", std::strerror(errno));
    return static_cast<std::byte*>(at);
  };
  addresses_ = map(PROT_NONE);
  alias_ = map(PROT_READ | PROT_WRITE);
  holes_[0] = kAddressBytes;
}

bool DeviceMemory::contains(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= addresses_ && at < addresses_ + kAddressBytes;
}

std::byte* DeviceMemory::alias(const void* address) const {
  return alias_ + (static_cast<const std::byte*>(address) - addresses_);
}

bool DeviceMemory::is_live(const std::byte* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto after = live_.upper_bound(const_cast<std::byte*>(begin));
  if (after == live_.begin()) return false;
  const Block& block = std::prev(after)->second;
  return begin + bytes <= block.begin + block.bytes;
}

void DeviceMemory::poison(const Block& block, std::string_view reason,
                          std::span<const VectorClock> finished) noexcept {
  const RangeAccess write{range_of(block), true};
  OperationCost cost;
  cost.is_counted = false;
  std::function<void()> fill;
  if (runtime().options().poisons) {
    fill = [at = alias(block.begin), bytes = block.bytes] { std::memset(at, kPoison, bytes); };
  }
  runtime().launch_unchecked(stream_of(device_, block.stream),
                             {reason, {&write, 1}, cost, fill, finished});
}

// The first hole that is large enough.
std::size_t DeviceMemory::carve(std::size_t bytes) {
  const auto hole = std::find_if(holes_.begin(), holes_.end(),
                                 [&](const auto& entry) { return entry.second >= bytes; });
  TORCH_CHECK(hole != holes_.end(), "simgpu: the address range is used up");
  const auto [offset, room] = *hole;
  holes_.erase(hole);
  if (room > bytes) holes_[offset + bytes] = room - bytes;
  return offset;
}

void DeviceMemory::give_back(const Block& block) {
  const auto offset = static_cast<std::size_t>(block.begin - addresses_);
  runtime().forget(range_of(block));
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(block.bytes));
  auto hole = holes_.emplace(offset, block.bytes).first;
  const auto next = std::next(hole);
  if (next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second != hole->first) return;
  previous->second += hole->second;
  holes_.erase(hole);
}

// Null where the capacity does not allow it.
std::byte* DeviceMemory::take(std::size_t bytes, c10::StreamId stream) {
  auto cached = cached_.find({stream, bytes});
  if (cached != cached_.end() && !cached->second.empty()) {
    const Block block = cached->second.back();
    cached->second.pop_back();
    cached_bytes_ -= static_cast<std::int64_t>(bytes);
    ++counts_.reuses;
    live_[block.begin] = block;
    return block.begin;
  }
  const std::int64_t reserved = counts_.live_bytes + cached_bytes_ + deferred_bytes_;
  if (reserved + static_cast<std::int64_t>(bytes) > capacity_bytes_) return nullptr;
  const Block block{addresses_ + carve(bytes), bytes, stream, {}};
  live_[block.begin] = block;
  return block.begin;
}

std::byte* DeviceMemory::allocate(std::size_t requested, c10::StreamId stream) {
  runtime().throw_on_error(device_);
  const std::size_t bytes = rounded(requested);
  const std::lock_guard lock(mutex_);
  finish_deferred(false);
  std::byte* begin = take(bytes, stream);
  if (begin == nullptr) {
    finish_deferred(true);
    give_cache_back();
    begin = take(bytes, stream);
  }
  if (begin == nullptr) throw_out_of_memory(requested);
  ++counts_.allocations;
  counts_.live_bytes += static_cast<std::int64_t>(bytes);
  counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.live_bytes);
  poison(live_[begin], "the first use of fresh memory");
  return begin;
}

void DeviceMemory::throw_out_of_memory(std::size_t requested) {
  ++counts_.out_of_memory;
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   "simgpu: out of memory on sim:", static_cast<int>(device_), ": requested ",
                   requested, " bytes, live ", counts_.live_bytes, ", capacity ", capacity_bytes_);
}

void DeviceMemory::free(std::byte* begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(begin);
  TORCH_INTERNAL_ASSERT(found != live_.end(), "simgpu: freed what is not allocated");
  Block block = std::move(found->second);
  live_.erase(found);
  counts_.live_bytes -= static_cast<std::int64_t>(block.bytes);
  if (block.recorded.empty()) return finish_free(std::move(block), {});
  Deferred deferred{std::move(block), {}};
  for (const c10::StreamId id : deferred.block.recorded) {
    deferred.events.push_back(std::make_shared<EventState>());
    runtime().record(deferred.events.back(), stream_of(device_, id));
  }
  deferred_bytes_ += static_cast<std::int64_t>(deferred.block.bytes);
  ++counts_.deferred_frees;
  deferred_.push_back(std::move(deferred));
}

void DeviceMemory::finish_free(Block block, std::span<const VectorClock> finished) noexcept {
  block.recorded.clear();
  poison(block, "freeing memory", finished);
  cached_bytes_ += static_cast<std::int64_t>(block.bytes);
  cached_[{block.stream, block.bytes}].push_back(block);
}

void DeviceMemory::finish_deferred(bool waits) {
  const auto is_finished = [&](Deferred& deferred) {
    // The block alone is known to be free of its users: that the allocator asked orders nothing
    // else, else luck would decide what counts as ordered.
    std::vector<VectorClock> finished;
    for (const Event& event : deferred.events) {
      const std::optional<VectorClock> knows = runtime().look_at(event, waits);
      if (!knows) return false;
      finished.push_back(*knows);
    }
    deferred_bytes_ -= static_cast<std::int64_t>(deferred.block.bytes);
    finish_free(std::move(deferred.block), finished);
    return true;
  };
  deferred_.erase(std::remove_if(deferred_.begin(), deferred_.end(), is_finished), deferred_.end());
}

void DeviceMemory::give_cache_back() {
  // The pages go, so nothing may still write to them. Not the program's own wait: the checker
  // does not learn of it.
  runtime().drain(device_);
  for (auto& [key, blocks] : cached_) {
    for (const Block& block : blocks) give_back(block);
  }
  cached_.clear();
  cached_bytes_ = 0;
}

void DeviceMemory::empty_cache() {
  const std::lock_guard lock(mutex_);
  finish_deferred(true);
  give_cache_back();
}

void DeviceMemory::record_stream(std::byte* begin, const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(begin);
  if (found == live_.end()) return;  // memory of others
  Block& block = found->second;
  if (stream.id() == block.stream && stream.device_index() == device_) return;
  TORCH_CHECK(stream.device_index() == device_, "simgpu: recordStream with ", stream,
              " for memory of sim:", static_cast<int>(device_));
  if (is_left_out(SyncKind::kRecordStream, stream, std::nullopt)) return;
  block.recorded.insert(stream.id());
}

MemoryCounts DeviceMemory::counts() {
  const std::lock_guard lock(mutex_);
  MemoryCounts counts = counts_;
  counts.reserved_bytes = counts_.live_bytes + cached_bytes_ + deferred_bytes_;
  return counts;
}

void DeviceMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  counts_.peak_bytes = counts_.live_bytes;
}

void DeviceMemory::set_capacity(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

}  // namespace plimsoll::simgpu
