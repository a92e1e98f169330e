// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/base/size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{
    {"", 1.0},
    {"B", 1.0},
    {"KiB", 1024.0},
    {"MiB", 1024.0 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
}};

[[noreturn]] void refuse(std::string_view flag, std::string_view text, std::string_view problem) {
  throw InvalidArgument(
      fmt::format("{}: '{}' {}; write a positive size such as 64MiB, 1.5GiB, 2GB or plain bytes",
                  flag, text, problem));
}

// Splits "1.5GiB" into number and rest; nullopt where it does not start with a plain number.
std::optional<std::pair<double, std::string_view>> split_number(std::string_view text) {
  double number = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number)) return std::nullopt;
  return std::pair(number, text.substr(static_cast<std::size_t>(end - text.data())));
}

std::optional<std::int64_t> parse_plain_bytes(std::string_view text) {
  std::int64_t bytes = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return bytes;
}

}  // namespace

std::int64_t parse_size(std::string_view text, std::string_view flag) {
  // Whole byte counts take an exact path: a double holds only 53 bits of them.
  if (const auto bytes = parse_plain_bytes(text)) {
    if (*bytes <= 0) refuse(flag, text, "is not positive");
    return *bytes;
  }
  // from_chars reads no exponent in its fixed form, so "9e99GiB" has to be named apart.
  if (text.find_first_of("eE") != std::string_view::npos && text.find_first_of("0123456789") == 0) {
    refuse(flag, text, "is out of range or has an exponent");
  }
  const auto split = split_number(text);
  if (!split) refuse(flag, text, "is not a size");
  const auto [number, unit] = *split;
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (bytes < 1) refuse(flag, text, "is not positive");
    if (bytes >= 0x1p63) refuse(flag, text, "is more than 64 bits can count");
    return static_cast<std::int64_t>(bytes);
  }
  refuse(flag, text, fmt::format("has an unknown unit '{}'", unit));
}

std::string format_size(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1000 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.2f} {}", value, kNames[unit]);
}

std::int64_t SizeSpec::resolve(std::int64_t stock_peak_bytes, std::int64_t persistent_bytes) const {
  // At least 1 in all: a share is a limit however small, and 0 bytes mean none to those who ask.
  const auto with_share_of = [this](std::int64_t whole, std::int64_t fixed) {
    const auto share = static_cast<std::int64_t>(static_cast<double>(whole) * percent / 100);
    return std::max<std::int64_t>(1, fixed + share);
  };
  switch (kind) {
    case Kind::kNone:
      return stock_peak_bytes;
    case Kind::kBytes:
      return bytes;
    case Kind::kPercentOfPeak:
      return with_share_of(stock_peak_bytes, 0);
    case Kind::kPercentAbovePersistent:
      return with_share_of(stock_peak_bytes - persistent_bytes, persistent_bytes);
    case Kind::kMinimum:
      break;
  }
  throw InvalidArgument("'min' is found by a search, not by arithmetic");
}

SizeSpec parse_size_spec(std::string_view text, std::string_view flag) {
  SizeSpec spec;
  if (text == "none") return spec;
  if (text == "min") {
    spec.kind = SizeSpec::Kind::kMinimum;
    return spec;
  }
  const auto percent_sign = text.find('%');
  if (percent_sign == std::string_view::npos) {
    spec.kind = SizeSpec::Kind::kBytes;
    spec.bytes = parse_size(text, flag);
    return spec;
  }
  const auto split = split_number(text);
  const bool above = split && split->second == "%a";
  if (!split || (!above && split->second != "%") || split->first <= 0 || split->first > 1000) {
    throw InvalidArgument(fmt::format(
        "{}: '{}' is not a percentage; write 33% (of stock's peak) or 33%a (of what stock's peak "
        "holds above the persistent bytes), more than 0 and at most 1000",
        flag, text));
  }
  spec.kind = above ? SizeSpec::Kind::kPercentAbovePersistent : SizeSpec::Kind::kPercentOfPeak;
  spec.percent = split->first;
  return spec;
}

}  // namespace plimsoll
