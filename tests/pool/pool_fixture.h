// SPDX-License-Identifier: Apache-2.0
// A pool over a host device, with owners that follow moves and policies that tests steer.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/base/error.h"
#include "plimsoll/device/host_device.h"
#include "plimsoll/pool/file_tier.h"
#include "plimsoll/pool/tensor_pool.h"

namespace plimsoll::pool {

// Knows where each of its blocks is from what the pool tells it.
class Follower : public BlockOwner {
 public:
  void place(BlockId block, void* address) { addresses_[block] = address; }
  void forget(BlockId block) { addresses_.erase(block); }
  void* address(BlockId block) const { return addresses_.at(block); }
  void on_move(BlockId block, void* old_address, void* new_address) noexcept override {
    EXPECT_EQ(addresses_.at(block), old_address);
    addresses_[block] = new_address;
    ++moves;
  }
  int moves = 0;

 private:
  std::unordered_map<BlockId, void*> addresses_;
};

// Costs by block where set, else the block's number.
class TablePolicy : public EvictionPolicy {
 public:
  double eviction_cost(BlockId block) const override {
    const auto found = costs.find(block);
    return found == costs.end() ? 1.0 + block.value() : found->second;
  }
  double slide_cost(std::int64_t bytes) const override {
    return slide_cost_per_byte * static_cast<double>(bytes);
  }
  std::unordered_map<BlockId, double> costs;
  double slide_cost_per_byte = 0;
};

inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct PoolOptions {
  std::int64_t budget_bytes = 4096;
  std::int64_t host_limit_bytes = std::numeric_limits<std::int64_t>::max();
  bool with_file = false;
  std::int64_t file_limit_bytes = std::numeric_limits<std::int64_t>::max();
  bool is_host_addressable = true;
  std::int64_t delay_ns = 0;
};

// Everything a pool needs, torn down in the right order.
struct PoolWorld {
  explicit PoolWorld(const PoolOptions& options = {}) {
    device::HostDeviceOptions device_options;
    device_options.faults = &faults;
    device_options.is_host_addressable = options.is_host_addressable;
    device_options.delay_ns = options.delay_ns;
    device.emplace(device_options);
    if (options.with_file) {
      FileTierOptions file_options;
      file_options.folder = testing::TempDir();
      file_options.limit_bytes = options.file_limit_bytes;
      file_options.verify_checksums = true;
      file_options.faults = &faults;
      file.emplace(file_options);
    }
    host.emplace(*device, HostTierOptions{options.host_limit_bytes, file ? &*file : nullptr});
    pool.emplace(*device, *host, policy,
                 TensorPoolOptions{.budget_bytes = options.budget_bytes, .poison = true});
  }

  // An idle block filled with `pattern`.
  BlockId make(std::int64_t bytes, int pattern) {
    const BlockId block = pool->allocate(bytes);
    follower.place(block, pool->address(block));
    write(block, pattern);
    pool->bind(block, &follower);
    return block;
  }
  void write(BlockId block, int pattern) {
    std::memset(pool->address(block), pattern, static_cast<std::size_t>(pool->size(block)));
  }
  // Whether all bytes of a block, wherever they are, are `pattern`.
  bool holds(BlockId block, int pattern) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(pool->size(block)));
    pool->read(block, bytes.data());
    for (const unsigned char byte : bytes)
      if (byte != static_cast<unsigned char>(pattern)) return false;
    return true;
  }

  device::FaultPlan faults;
  std::optional<device::HostDevice> device;
  std::optional<FileTier> file;
  std::optional<HostTier> host;
  TablePolicy policy;
  Follower follower;
  std::optional<TensorPool> pool;
};

}  // namespace plimsoll::pool
