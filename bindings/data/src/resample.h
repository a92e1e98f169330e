// SPDX-License-Identifier: Apache-2.0
// Fits an image of bytes into a square of floats.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace plimsoll::data {

struct Plane {
  const std::uint8_t* pixels = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Maps every byte through `values` into a size x size square: copied where the size is the image's,
// centred in a border of `values[0]` where the square is larger by at most half, else resampled
// bilinearly (pixel centres at half, edges clamped).
void fit_plane(const Plane& plane, const std::array<float, 256>& values, std::int64_t size,
               std::span<float> out);

}  // namespace plimsoll::data
