// SPDX-License-Identifier: Apache-2.0
// Host memory that holds evicted bytes, with a limit of its own.
//
// Nouns: HostTier, HostSpan.
//
//     small spans share slabs            large spans own one, rounded up to pages
//     [aa|b|cccc|......]                 [dddddddddddddddd]  [eeeeeeeee]  [free, kept]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "plimsoll/device/device.h"

namespace plimsoll::pool {

class FileTier;

// A piece of the tier; a value that only its tier understands.
struct HostSpan {
  void* data = nullptr;
  std::int64_t bytes = 0;   // as asked for
  std::int32_t slab = -1;   // which slab it lies in
  std::int32_t piece = -1;  // which piece of a shared slab, -1 where the span owns the slab

  bool valid() const noexcept { return data != nullptr; }
};

struct HostTierOptions {
  // Bytes of slabs, in use or kept for reuse, the tier may hold. Never exceeded.
  std::int64_t limit_bytes = INT64_MAX;
  // Where bytes go that find no room here; null: nowhere. Must outlive the tier.
  FileTier* file = nullptr;
};

// Slabs are recycled: a freed slab is kept and serves later spans of 7/8 to 1 of its size; kept
// slabs are given back when the limit needs them.
// Waste: less than a page for a span of its own (>= 256 KiB), up to 1/8 for a recycled slab.
// Threads: needs the caller's lock. Cost: O(log n); a new slab costs one Device::allocate_host.
class HostTier {
 public:
  // The device must outlive the tier.
  explicit HostTier(device::Device& device, HostTierOptions options = {});
  ~HostTier();
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // Returns a span of `bytes` > 0, 64-byte aligned, contents undefined.
  // Errors: HostOutOfMemory with figures (the limit, or the machine's memory), state unchanged
  // but for kept slabs that were given back.
  HostSpan allocate(std::int64_t bytes);
  // As allocate, but says no by an empty result.
  std::optional<HostSpan> try_allocate(std::int64_t bytes);
  // Whether try_allocate would find room under the limit. Never allocates.
  bool has_room(std::int64_t bytes) const noexcept;
  void deallocate(const HostSpan& span) noexcept;
  // Gives kept slabs back to the machine.
  void trim() noexcept;

  std::int64_t limit_bytes() const noexcept;
  std::int64_t used_bytes() const noexcept;      // in spans, as asked for
  std::int64_t reserved_bytes() const noexcept;  // in slabs, used or kept
  FileTier* file() const noexcept;
  // Errors: InternalError naming the equation that does not hold.
  void check_invariants() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::pool
