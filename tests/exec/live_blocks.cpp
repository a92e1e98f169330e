// SPDX-License-Identifier: Apache-2.0
#include "live_blocks.h"

#include <algorithm>
#include <cstdlib>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::exec::testing {

void LiveBlocks::write_stamp(std::uintptr_t begin, const Block& block) {
  const std::size_t bytes = std::min<std::size_t>(sizeof(block.stamp), block.end - begin);
  std::memcpy(reinterpret_cast<void*>(begin), &block.stamp, bytes);
  std::memcpy(reinterpret_cast<void*>(block.end - bytes), &block.stamp, bytes);
}

bool LiveBlocks::has_stamp(std::uintptr_t begin, const Block& block) {
  const std::size_t bytes = std::min<std::size_t>(sizeof(block.stamp), block.end - begin);
  // A block shorter than two stamps holds the second one.
  return std::memcmp(reinterpret_cast<void*>(block.end - bytes), &block.stamp, bytes) == 0 &&
         (block.end - begin < 2 * sizeof(block.stamp) ||
          std::memcmp(reinterpret_cast<void*>(begin), &block.stamp, bytes) == 0);
}

std::string LiveBlocks::add(void* pointer, std::int64_t bytes, std::int64_t alignment) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard guard(lock_);
  if (begin == 0) return "null for a request that is not empty";
  if (begin % static_cast<std::uintptr_t>(alignment) != 0)
    return fmt::format("{:#x} is not aligned to {}", begin, alignment);
  const Block block{begin + static_cast<std::uintptr_t>(bytes), ++last_stamp_};
  const auto above = blocks_.lower_bound(begin);
  if (above != blocks_.end() && above->first < block.end)
    return fmt::format("[{:#x}, {:#x}) overlaps the live block at {:#x}", begin, block.end,
                       above->first);
  if (above != blocks_.begin() && std::prev(above)->second.end > begin)
    return fmt::format("[{:#x}, {:#x}) overlaps the live block at {:#x}", begin, block.end,
                       std::prev(above)->first);
  blocks_.emplace_hint(above, begin, block);
  write_stamp(begin, block);
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return "";
}

std::string LiveBlocks::remove(void* pointer) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard guard(lock_);
  const auto block = blocks_.find(begin);
  if (block == blocks_.end()) return fmt::format("{:#x} is not live", begin);
  const bool is_intact = has_stamp(begin, block->second);
  live_bytes_ -= static_cast<std::int64_t>(block->second.end - begin);
  blocks_.erase(block);
  return is_intact ? "" : fmt::format("the block at {:#x} was written to by another", begin);
}

void* TestMemory::allocate(std::int64_t bytes, device::Queue queue) {
  if (bytes < 0) throw InvalidArgument(fmt::format("{} bytes", bytes));
  if (bytes == 0) return nullptr;
  const std::lock_guard guard(lock_);
  if (bytes > limit_bytes_ - stats_.live_bytes) {
    ++stats_.failures;
    throw DeviceOutOfMemory(
        "test memory",
        {.requested_bytes = bytes, .live_bytes = stats_.live_bytes, .limit_bytes = limit_bytes_});
  }
  stats_.live_bytes += bytes;
  stats_.live_blocks += 1;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  stats_.allocations += 1;
  stats_.allocated_bytes += bytes;
  const std::int64_t rounded = (bytes + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
  return std::aligned_alloc(static_cast<std::size_t>(alignment_bytes_),
                            static_cast<std::size_t>(rounded));
}

void TestMemory::deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept {
  if (pointer == nullptr) return;
  const std::lock_guard guard(lock_);
  stats_.live_bytes -= bytes;
  stats_.live_blocks -= 1;
  std::free(pointer);
}

pool::ResourceStatistics TestMemory::stats() const noexcept {
  const std::lock_guard guard(lock_);
  return stats_;
}

}  // namespace plimsoll::exec::testing
