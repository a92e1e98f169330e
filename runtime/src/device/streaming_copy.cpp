// SPDX-License-Identifier: Apache-2.0
#include "device/streaming_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define PLIMSOLL_STREAMS_LINES
#include <immintrin.h>
#endif

namespace plimsoll::device {

#ifdef PLIMSOLL_STREAMS_LINES

namespace {

constexpr std::int64_t kLine = 64;

// Copies whole lines, to aligned ones.
using StreamLines = void (*)(std::byte* to, const std::byte* from, std::int64_t bytes) noexcept;

void stream_lines(std::byte* to, const std::byte* from, std::int64_t bytes) noexcept {
  constexpr std::int64_t kVector = 16;
  for (std::int64_t done = 0; done < bytes; done += kLine) {
    // All loads before all stores: a line at a time fills a write-combining buffer.
    __m128i parts[kLine / kVector];
    for (std::int64_t i = 0; i < kLine / kVector; ++i)
      parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + i * kVector));
    for (std::int64_t i = 0; i < kLine / kVector; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + done + i * kVector), parts[i]);
  }
  _mm_sfence();
}

// One store a line, and loads asked for early: a third more bytes a second than the above.
__attribute__((target("avx512f"))) void stream_lines_avx512(std::byte* to, const std::byte* from,
                                                            std::int64_t bytes) noexcept {
  constexpr std::int64_t kAhead = 2048;
  for (std::int64_t done = 0; done < bytes; done += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + std::min(done + kAhead, bytes - kLine)),
                 _MM_HINT_T1);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + done), _mm512_loadu_si512(from + done));
  }
  _mm_sfence();
}

StreamLines fastest_stream_lines() {
  return __builtin_cpu_supports("avx512f") ? stream_lines_avx512 : stream_lines;
}

}  // namespace

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes,
                    StreamingStores stores) noexcept {
  static const StreamLines kFastestLines = fastest_stream_lines();
  const StreamLines stream = stores == StreamingStores::kFastest ? kFastestLines : stream_lines;
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  const std::int64_t head = std::min(bytes, misaligned == 0 ? 0 : kLine - misaligned);
  std::memcpy(to, from, static_cast<std::size_t>(head));
  const std::int64_t whole = (bytes - head) / kLine * kLine;
  if (whole > 0) stream(to + head, from + head, whole);
  const std::int64_t done = head + whole;
  std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

#else

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes,
                    StreamingStores) noexcept {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

#endif

}  // namespace plimsoll::device
