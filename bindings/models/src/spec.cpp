// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/models/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/nearest_name.h"

namespace plimsoll::models {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string describe_range(const KeyInfo& key) {
  switch (key.kind) {
    case KeyInfo::Kind::kInteger:
      return fmt::format("a whole number from {:.0f} to {:.0f}", key.minimum, key.maximum);
    case KeyInfo::Kind::kReal:
      return fmt::format("a number from {} to {}", key.minimum, key.maximum);
    case KeyInfo::Kind::kList:
      return fmt::format("whole numbers from {:.0f} to {:.0f} joined by dashes, such as {}",
                         key.minimum, key.maximum, key.default_value);
    case KeyInfo::Kind::kChoice:
      return fmt::format("one of {}", fmt::join(key.choices, ", "));
  }
  return "";
}

bool is_in_range(const KeyInfo& key, double value) {
  return std::isfinite(value) && value >= key.minimum && value <= key.maximum;
}

bool is_valid(const KeyInfo& key, const std::string& value) {
  switch (key.kind) {
    case KeyInfo::Kind::kInteger: {
      const auto number = parse_number<std::int64_t>(value);
      return number && is_in_range(key, static_cast<double>(*number));
    }
    case KeyInfo::Kind::kReal: {
      const auto number = parse_number<double>(value);
      return number && is_in_range(key, *number);
    }
    case KeyInfo::Kind::kList: {
      const auto parts = split(value, '-');
      return parts.size() <= 64 && std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
               const auto number = parse_number<std::int64_t>(part);
               return number && is_in_range(key, static_cast<double>(*number));
             });
    }
    case KeyInfo::Kind::kChoice:
      return std::find(key.choices.begin(), key.choices.end(), value) != key.choices.end();
  }
  return false;
}

const ModelInfo& find_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelInfo& info : model_list()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  throw InvalidArgument(
      fmt::format("model '{}' is unknown; the nearest is '{}' (`plimsoll models` lists all)", name,
                  nearest_name(name, names)));
}

std::map<std::string, std::string> parse_keys(const ModelInfo& info, std::string_view text) {
  std::map<std::string, std::string> given;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw InvalidArgument(fmt::format(
          "model '{}': '{}' is no key=value pair; write {}:{}=VALUE", info.name, part, info.name,
          part.empty() || info.find_key(part) == nullptr ? info.keys.front().name : part));
    }
    const std::string key = part.substr(0, equals);
    if (info.find_key(key) == nullptr) {
      std::vector<std::string> names;
      names.reserve(info.keys.size());
      for (const KeyInfo& known : info.keys) names.push_back(known.name);
      throw InvalidArgument(fmt::format("model '{}': key '{}' is unknown; the nearest is '{}' ({})",
                                        info.name, key, nearest_name(key, names),
                                        fmt::join(names, ", ")));
    }
    if (!given.emplace(key, part.substr(equals + 1)).second)
      throw InvalidArgument(fmt::format("model '{}': key '{}' stands twice", info.name, key));
  }
  return given;
}

}  // namespace

const KeyInfo* ModelInfo::find_key(std::string_view key) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const KeyInfo& k) { return k.name == key; });
  return found == keys.end() ? nullptr : &*found;
}

Settings::Settings(const ModelInfo& info, std::map<std::string, std::string> given)
    : model_(info.name), given_(std::move(given)) {
  for (const KeyInfo& key : info.keys) {
    const auto found = given_.find(key.name);
    const std::string& value = found == given_.end() ? key.default_value : found->second;
    if (!is_valid(key, value)) {
      throw InvalidArgument(fmt::format("model '{}': {} = '{}' must be {}", info.name, key.name,
                                        value, describe_range(key)));
    }
    order_.push_back(key.name);
    values_[key.name] = value;
  }
}

const std::string& Settings::value(const std::string& key) const {
  const auto found = values_.find(key);
  PLIMSOLL_CHECK(found != values_.end(), "model " + model_ + " has no key " + key);
  return found->second;
}

std::int64_t Settings::integer(const std::string& key) const {
  return *parse_number<std::int64_t>(value(key));
}

double Settings::real(const std::string& key) const { return *parse_number<double>(value(key)); }

std::vector<std::int64_t> Settings::list(const std::string& key) const {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split(value(key), '-'))
    numbers.push_back(*parse_number<std::int64_t>(part));
  return numbers;
}

const std::string& Settings::choice(const std::string& key) const { return value(key); }

std::string Settings::canonical() const {
  std::string text = model_;
  char separator = ':';
  for (const std::string& key : order_) {
    if (!is_given(key)) continue;
    text += std::exchange(separator, ',') + key + "=" + given_.at(key);
  }
  return text;
}

Settings parse_model(std::string_view text) {
  const std::size_t colon = text.find(':');
  const ModelInfo& info = find_model(std::string(text.substr(0, colon)));
  if (colon == std::string_view::npos) return {info, {}};
  return {info, parse_keys(info, text.substr(colon + 1))};
}

}  // namespace plimsoll::models
