// SPDX-License-Identifier: Apache-2.0
#include "device/streaming_copy.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace plimsoll::device {

#ifdef __SSE2__

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes) noexcept {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kVector = 16;
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  const std::int64_t head = std::min(bytes, misaligned == 0 ? 0 : kLine - misaligned);
  std::memcpy(to, from, static_cast<std::size_t>(head));
  std::int64_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    // All loads before all stores: a line at a time fills a write-combining buffer.
    __m128i parts[kLine / kVector];
    for (std::int64_t i = 0; i < kLine / kVector; ++i)
      parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + i * kVector));
    for (std::int64_t i = 0; i < kLine / kVector; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + done + i * kVector), parts[i]);
  }
  _mm_sfence();
  std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

#else

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes) noexcept {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

#endif

}  // namespace plimsoll::device
