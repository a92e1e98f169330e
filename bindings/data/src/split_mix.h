// SPDX-License-Identifier: Apache-2.0
// SplitMix64: a generator that gives the same numbers on every machine. Source: Steele, Lea, Flood,
// "Fast Splittable Pseudorandom Number Generators", 2014.
#pragma once

#include <cstdint>

namespace plimsoll::data {

class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  // Mixes several numbers into one seed.
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    return SplitMix(a ^ (SplitMix(b).next() + 0x632be59bd9b4e019ULL)).next();
  }
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // In [0, n).
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  // In [0, 1).
  float uniform() { return static_cast<float>(next() >> 40) * 0x1.0p-24F; }

 private:
  std::uint64_t state_;
};

}  // namespace plimsoll::data
