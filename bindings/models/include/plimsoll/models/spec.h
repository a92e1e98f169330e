// SPDX-License-Identifier: Apache-2.0
// What a model is called and which values shape it: "resnet:stages=6-32-40-6,image=32".
//
// Nouns: KeyInfo (one key a model understands), ModelInfo (one model of the zoo), Settings (every
// key of one model with its value).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::models {

// One key of a model.
struct KeyInfo {
  enum class Kind : std::uint8_t { kInteger, kReal, kList, kChoice };
  std::string name;
  Kind kind = Kind::kInteger;
  std::string default_value;
  // Both ends belong to the range; in lists they hold for every element.
  double minimum = 0;
  double maximum = 0;
  std::vector<std::string> choices = {};
  std::string meaning;
};

// One model of the zoo. `small` is the same model at a size for tests.
struct ModelInfo {
  std::string name;
  std::string summary;
  std::string source;
  std::vector<KeyInfo> keys;
  std::string small;
  // The number of parameters its authors (or the reference implementation) publish for the default
  // keys; tests compare.
  std::optional<std::int64_t> published_parameters = {};

  const KeyInfo* find_key(std::string_view key) const;
};

// Every key of a model with a checked value. Cost: O(log keys) a look-up.
class Settings {
 public:
  Settings(const ModelInfo& info, std::map<std::string, std::string> given);

  const std::string& model() const noexcept { return model_; }
  std::int64_t integer(const std::string& key) const;
  double real(const std::string& key) const;
  std::vector<std::int64_t> list(const std::string& key) const;
  const std::string& choice(const std::string& key) const;
  // Says whether the user wrote this key.
  bool is_given(const std::string& key) const { return given_.count(key) > 0; }
  // The name with the given keys in the model's own order and spelling: equal for equal models.
  std::string canonical() const;

 private:
  const std::string& value(const std::string& key) const;

  std::string model_;
  std::vector<std::string> order_;
  std::map<std::string, std::string> given_;
  std::map<std::string, std::string> values_;
};

// All models, in the order in which they are listed.
const std::vector<ModelInfo>& model_list();

// Parses "name" or "name:key=value,key=value"; lists are joined by dashes.
// Errors: InvalidArgument for an unknown model or key (with the nearest one that exists), a key
// twice, a value that is no number, out of range or no choice (naming key, value and range).
Settings parse_model(std::string_view text);

}  // namespace plimsoll::models
