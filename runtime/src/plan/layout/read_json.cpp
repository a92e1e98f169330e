// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/layout_io.h"

namespace plimsoll::plan {
namespace {

using Json = nlohmann::json;

class JsonReader {
 public:
  explicit JsonReader(const std::string& file) : file_(file) {}

  LayoutProblem read(std::string_view text) {
    const Json root = parse(text);
    if (!root.is_object()) fail("", "the file has to hold an object with 'buffers'");
    check_keys(root, "", {"buffers", "arenas", "reserved"});
    LayoutProblem problem;
    if (root.contains("arenas")) read_arenas(root["arenas"], problem);
    const Json& buffers = list(root, "buffers", "");
    problem.buffers.reserve(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i)
      read_buffer(buffers[i], fmt::format("buffers[{}]", i), problem);
    if (root.contains("reserved")) read_reserved(root["reserved"], problem);
    try {
      check_layout_problem(problem);
    } catch (const InvalidArgument& error) {
      throw InvalidFile(file_, "", error.what());
    }
    return problem;
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& problem) const {
    throw InvalidFile(file_, path, problem);
  }

  Json parse(std::string_view text) const {
    // Nesting is bounded before anything is built: no layout needs more than five levels.
    const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
      if (depth > 8) fail("", "is nested more than 8 deep");
      return true;
    };
    try {
      return Json::parse(text, bounded);
    } catch (const Json::exception& error) {
      const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
      fail(syntax != nullptr ? fmt::format("byte {}", syntax->byte) : "", "is no JSON");
    }
  }

  void check_keys(const Json& object, const std::string& path,
                  std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) fail(path, "has to be an object");
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail(path, fmt::format("key '{}' is unknown; there are {}", key.substr(0, 40),
                               fmt::join(known, ", ")));
    }
  }

  const Json& list(const Json& object, const char* key, const std::string& path) const {
    if (!object.contains(key) || !object[key].is_array())
      fail(path.empty() ? key : path + "." + key, "a list is needed here");
    return object[key];
  }

  std::int64_t number(const Json& value, const std::string& path) const {
    const bool is_too_large =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(kUnlimitedBytes);
    if (!value.is_number_integer() || is_too_large)
      fail(path, fmt::format("{} has to be an integer of 64 bits",
                             value.is_structured() ? "this" : value.dump().substr(0, 40)));
    return value.get<std::int64_t>();
  }

  std::int64_t field(const Json& object, const char* key, const std::string& path) const {
    if (!object.contains(key)) fail(path, fmt::format("'{}' is missing", key));
    return number(object[key], path + "." + key);
  }

  std::int64_t field(const Json& object, const char* key, const std::string& path,
                     std::int64_t otherwise) const {
    return object.contains(key) ? number(object[key], path + "." + key) : otherwise;
  }

  std::int32_t arena(const Json& object, const std::string& path) const {
    const std::int64_t arena = field(object, "arena", path, 0);
    if (arena < 0 || arena >= 1024)
      fail(path + ".arena", fmt::format("{} has to be in [0, 1024)", arena));
    return static_cast<std::int32_t>(arena);
  }

  void read_arenas(const Json& arenas, LayoutProblem& problem) const {
    if (!arenas.is_array() || arenas.empty() || arenas.size() > 1024)
      fail("arenas", "a list of 1 to 1024 arenas is needed here");
    problem.arenas.clear();
    for (std::size_t i = 0; i < arenas.size(); ++i) {
      const std::string path = fmt::format("arenas[{}]", i);
      check_keys(arenas[i], path, {"name", "capacity"});
      LayoutArena result;
      result.capacity_bytes = field(arenas[i], "capacity", path, kUnlimitedBytes);
      if (arenas[i].contains("name")) result.name = text(arenas[i]["name"], path + ".name");
      problem.arenas.push_back(std::move(result));
    }
  }

  std::string text(const Json& value, const std::string& path) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_integer()) return value.dump();
    fail(path, "a text is needed here");
  }

  void read_buffer(const Json& object, const std::string& path, LayoutProblem& problem) const {
    check_keys(object, path,
               {"id", "lower", "upper", "size", "alignment", "offset", "hint", "arena", "gaps"});
    if (!object.contains("id")) fail(path, "'id' is missing");
    LayoutBuffer b;
    b.lifetime = {field(object, "lower", path), field(object, "upper", path)};
    b.size_bytes = field(object, "size", path);
    b.alignment_bytes = field(object, "alignment", path, 1);
    b.fixed_offset_bytes = field(object, "offset", path, kNoOffset);
    b.hint_offset_bytes = std::max(kNoOffset, field(object, "hint", path, kNoOffset));
    b.arena = arena(object, path);
    if (object.contains("gaps")) {
      const Json& gaps = list(object, "gaps", path);
      for (std::size_t g = 0; g < gaps.size(); ++g)
        b.gaps.push_back(read_gap(gaps[g], fmt::format("{}.gaps[{}]", path, g)));
    }
    problem.buffers.push_back(std::move(b));
    problem.names.push_back(text(object["id"], path + ".id"));
  }

  LayoutGap read_gap(const Json& object, const std::string& path) const {
    check_keys(object, path, {"lower", "upper", "window"});
    LayoutGap gap;
    gap.time = {field(object, "lower", path), field(object, "upper", path)};
    if (object.contains("window")) {
      const Json& window = list(object, "window", path);
      if (window.size() != 2) fail(path + ".window", "[low, high] is needed here");
      gap.kept = {number(window[0], path + ".window[0]"), number(window[1], path + ".window[1]")};
    }
    return gap;
  }

  void read_reserved(const Json& reserved, LayoutProblem& problem) const {
    if (!reserved.is_array()) fail("reserved", "a list is needed here");
    for (std::size_t i = 0; i < reserved.size(); ++i) {
      const std::string path = fmt::format("reserved[{}]", i);
      check_keys(reserved[i], path, {"arena", "lower", "upper", "begin", "end"});
      problem.reserved.push_back(
          {arena(reserved[i], path),
           {field(reserved[i], "lower", path), field(reserved[i], "upper", path)},
           {field(reserved[i], "begin", path), field(reserved[i], "end", path)}});
    }
  }

  const std::string& file_;
};

}  // namespace

LayoutProblem parse_layout_json(std::string_view text, const std::string& file) {
  return JsonReader(file).read(text);
}

}  // namespace plimsoll::plan
