// SPDX-License-Identifier: Apache-2.0
// Noun: a high-water mark that many threads raise.
#pragma once

#include <atomic>
#include <cstdint>

namespace plimsoll::pool {

inline void raise_peak(std::atomic<std::int64_t>& peak, std::int64_t value) noexcept {
  std::int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace plimsoll::pool
