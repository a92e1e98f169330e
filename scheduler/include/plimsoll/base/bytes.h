// SPDX-License-Identifier: Apache-2.0
// Checked arithmetic on byte counts. Every byte count in Plimsoll is a std::int64_t.
#pragma once

#include <cstdint>

#include "plimsoll/base/error.h"

namespace plimsoll {

constexpr std::int64_t kib(std::int64_t n) { return n << 10; }
constexpr std::int64_t mib(std::int64_t n) { return n << 20; }
constexpr std::int64_t gib(std::int64_t n) { return n << 30; }

// Adds two byte counts. Errors: InvalidArgument where the sum leaves 64 bits.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) [[unlikely]]
    throw InvalidArgument("the sum of two byte counts leaves 64 bits");
  return sum;
}

// Multiplies a byte count. Errors: InvalidArgument where the product leaves 64 bits.
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) [[unlikely]]
    throw InvalidArgument("the product of two byte counts leaves 64 bits");
  return product;
}

// Rounds up to a multiple of `alignment`, a power of two.
// Errors: InvalidArgument where the result leaves 64 bits.
inline std::int64_t align_up(std::int64_t bytes, std::int64_t alignment) {
  return checked_add(bytes, alignment - 1) & ~(alignment - 1);
}

}  // namespace plimsoll
