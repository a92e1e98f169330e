// SPDX-License-Identifier: Apache-2.0
// Sizes as people write them: "64MiB", "1.5GiB", "2GB", "33%", "33%a", "min", "none".
//
// Noun: SizeSpec, a size that may depend on what a run turns out to need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll {

// Parses "64MiB", "1.5GiB", "2GB", "123" (bytes) into a positive byte count; fractions of a byte
// are cut off. `flag` names the origin in the message.
// Errors: InvalidArgument for zero, negative, overflow, unknown units, trailing text.
std::int64_t parse_size(std::string_view text, std::string_view flag);

// Prints a byte count with the largest binary unit that keeps three digits, such as "1.50 GiB".
std::string format_size(std::int64_t bytes);

struct SizeSpec {
  enum class Kind : std::uint8_t {
    kNone,                    // no limit
    kBytes,                   // `bytes`
    kPercentOfPeak,           // `percent` of stock's peak
    kPercentAbovePersistent,  // persistent bytes + `percent` of the rest of stock's peak
    kMinimum,                 // the smallest that works
  };
  Kind kind = Kind::kNone;
  std::int64_t bytes = 0;
  double percent = 0;

  // Returns the byte count for a run whose stock peak and persistent bytes are known; kNone gives
  // the peak, a percentage at least 1. Errors: InvalidArgument for kMinimum, which only a search
  // can resolve.
  std::int64_t resolve(std::int64_t stock_peak_bytes, std::int64_t persistent_bytes) const;
  bool needs_stock_peak() const {
    return kind == Kind::kPercentOfPeak || kind == Kind::kPercentAbovePersistent;
  }
};

// Parses "none", "min", "33%", "33%a" or a size. Percentages lie in (0, 1000].
// Errors: InvalidArgument, as parse_size.
SizeSpec parse_size_spec(std::string_view text, std::string_view flag);

}  // namespace plimsoll
