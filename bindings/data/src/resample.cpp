// SPDX-License-Identifier: Apache-2.0
#include "resample.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::data {
namespace {

void centre(const Plane& plane, const std::array<float, 256>& values, std::int64_t size,
            std::span<float> out) {
  std::fill(out.begin(), out.end(), values[0]);
  const std::int64_t top = (size - plane.height) / 2;
  const std::int64_t left = (size - plane.width) / 2;
  for (std::int64_t y = 0; y < plane.height; ++y)
    for (std::int64_t x = 0; x < plane.width; ++x)
      out[static_cast<std::size_t>((y + top) * size + x + left)] =
          values[plane.pixels[y * plane.width + x]];
}

struct Sample {
  std::int64_t low = 0, high = 0;
  float share = 0;  // of `high`
};

Sample sample_at(std::int64_t target, std::int64_t target_size, std::int64_t source_size) {
  const double place = (static_cast<double>(target) + 0.5) * static_cast<double>(source_size) /
                           static_cast<double>(target_size) -
                       0.5;
  const double clamped = std::clamp(place, 0.0, static_cast<double>(source_size - 1));
  const auto low = static_cast<std::int64_t>(std::floor(clamped));
  return {low, std::min(low + 1, source_size - 1),
          static_cast<float>(clamped - static_cast<double>(low))};
}

void resample(const Plane& plane, const std::array<float, 256>& values, std::int64_t size,
              std::span<float> out) {
  for (std::int64_t y = 0; y < size; ++y) {
    const Sample row = sample_at(y, size, plane.height);
    for (std::int64_t x = 0; x < size; ++x) {
      const Sample column = sample_at(x, size, plane.width);
      const auto value = [&](std::int64_t r, std::int64_t c) {
        return values[plane.pixels[r * plane.width + c]];
      };
      const float upper = value(row.low, column.low) * (1 - column.share) +
                          value(row.low, column.high) * column.share;
      const float lower = value(row.high, column.low) * (1 - column.share) +
                          value(row.high, column.high) * column.share;
      out[static_cast<std::size_t>(y * size + x)] = upper * (1 - row.share) + lower * row.share;
    }
  }
}

}  // namespace

void fit_plane(const Plane& plane, const std::array<float, 256>& values, std::int64_t size,
               std::span<float> out) {
  const std::int64_t longest = std::max(plane.height, plane.width);
  if (size >= longest && 2 * size <= 3 * longest) {
    centre(plane, values, size, out);
  } else {
    resample(plane, values, size, out);
  }
}

}  // namespace plimsoll::data
