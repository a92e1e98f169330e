// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/builder.h"
#include "plimsoll/graph/json.h"

#include "graph/file_bytes.h"

namespace plimsoll::graph {
namespace {

// Ordered: attributes keep the order they are written in.
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 6;

// Ids as written, by the index they were given; empty while every id equals its index.
class IdTable {
 public:
  // Returns false where `id` was taken already.
  bool add(std::int64_t id) {
    if (index_of_.empty() && id == count_) {
      ++count_;
      return true;
    }
    if (index_of_.empty()) {
      for (std::int64_t i = 0; i < count_; ++i) index_of_.emplace(i, static_cast<std::int32_t>(i));
    }
    return index_of_.emplace(id, static_cast<std::int32_t>(count_++)).second;
  }
  std::int32_t find(std::int64_t id) const {
    if (index_of_.empty()) return id >= 0 && id < count_ ? static_cast<std::int32_t>(id) : -1;
    const auto found = index_of_.find(id);
    return found == index_of_.end() ? -1 : found->second;
  }
  std::int64_t count() const { return count_; }

 private:
  std::int64_t count_ = 0;
  std::unordered_map<std::int64_t, std::int32_t> index_of_;
};

// One element of an array, with the place it stands at.
class Element {
 public:
  Element(const Json& json, const std::string& file, std::string path)
      : json_(json), file_(file), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& problem) const {
    throw InvalidFile(file_, key.empty() ? path_ : path_ + "." + key, problem);
  }
  void expect_object() const {
    if (!json_.is_object()) refuse("", "is not an object");
  }
  void allow_keys(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : json_.items()) {
      bool known = key.starts_with("x-");
      for (const std::string_view allowed : keys) known = known || key == allowed;
      if (!known) refuse(key, "is no key of this format; keys that start with 'x-' are ignored");
    }
  }
  bool has(const char* key) const { return json_.contains(key); }
  const Json& at(const char* key) const { return json_.at(key); }

  std::int64_t integer(const Json& value, const std::string& key) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!fits) refuse(key, fmt::format("is {}, not a whole number of 64 bits", shorten(value)));
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const char* key) const {
    if (!has(key)) refuse(key, "is missing");
    return integer(at(key), key);
  }
  std::int64_t integer_or(const char* key, std::int64_t otherwise) const {
    return has(key) ? integer(key) : otherwise;
  }
  double real_or(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_number()) refuse(key, fmt::format("is {}, not a number", shorten(at(key))));
    return at(key).get<double>();
  }
  bool flag_or(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_boolean()) refuse(key, "is neither true nor false");
    return at(key).get<bool>();
  }
  std::string_view text_or(const char* key, std::string_view otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_string()) refuse(key, fmt::format("is {}, not a string", shorten(at(key))));
    return at(key).get_ref<const std::string&>();
  }
  std::vector<std::int64_t> integers(const Json& list, const std::string& key) const {
    if (!list.is_array()) refuse(key, "is not an array");
    std::vector<std::int64_t> values;
    values.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      values.push_back(integer(list[i], fmt::format("{}[{}]", key, i)));
    return values;
  }

 private:
  static std::string shorten(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 40) text = text.substr(0, 37) + "...";
    return text;
  }

  const Json& json_;
  const std::string& file_;
  std::string path_;
};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Graph read(std::string_view text) {
    try {
      const Json rest = Json::parse(text.begin(), text.end(),
                                    [this](int depth, Json::parse_event_t event, Json& parsed) {
                                      return on_event(depth, event, parsed);
                                    });
      check_header(rest);
      resolve_later_ops();
      return builder_.build();
    } catch (const InvalidGraph& error) {
      throw InvalidFile(file_, place_of(error), error.problem());
    } catch (const Json::parse_error& error) {
      throw InvalidFile(file_, fmt::format("byte {}", error.byte), "is not valid JSON");
    } catch (const Json::exception& error) {
      throw InvalidFile(file_, section_, error.what());
    }
  }

 private:
  // Returns whether the value is kept; elements of the three arrays are used and dropped.
  bool on_event(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth)
      throw InvalidFile(file_, section_, fmt::format("is nested deeper than {}", kMaxDepth));
    if (depth == 1 && event == Json::parse_event_t::key) {
      section_ = parsed.get<std::string>();
      index_ = 0;
      if (is_list() && !seen_.insert({section_, true}).second)
        throw InvalidFile(file_, section_, "stands here a second time");
      const char* needs = section_ == "values" ? "storages"
                          : section_ == "ops"  ? "values"
                                               : nullptr;
      if (needs != nullptr && !seen_.contains(needs))
        throw InvalidFile(file_, section_, fmt::format("stands before '{}'", needs));
      return true;
    }
    if (!is_list()) return true;
    const bool ends = event == Json::parse_event_t::object_end ||
                      event == Json::parse_event_t::array_end ||
                      event == Json::parse_event_t::value;
    if (depth == 1 && ends && event != Json::parse_event_t::array_end)
      throw InvalidFile(file_, section_, "is not an array");
    if (depth != 2 || !ends) return true;
    use(Element(parsed, file_, fmt::format("{}[{}]", section_, index_)));
    ++index_;
    return false;
  }

  bool is_list() const {
    return section_ == "storages" || section_ == "values" || section_ == "ops";
  }

  void use(const Element& element) {
    element.expect_object();
    if (section_ == "storages") {
      use_storage(element);
    } else if (section_ == "values") {
      use_value(element);
    } else {
      use_op(element);
    }
  }

  void take_id(const Element& element, IdTable& ids) {
    const std::int64_t id = element.integer_or("id", ids.count());
    if (!ids.add(id)) element.refuse("id", fmt::format("{} is taken already", id));
  }

  template <typename IdType>
  IdType resolve(const Element& element, const IdTable& ids, std::int64_t id,
                 const std::string& key, std::string_view what) const {
    const std::int32_t index = ids.find(id);
    if (index < 0) element.refuse(key, fmt::format("names {} {}, which does not exist", what, id));
    return IdType(index);
  }

  void use_storage(const Element& element) {
    element.allow_keys({"id", "bytes", "live_at_end", "unordered_writes"});
    take_id(element, storages_);
    builder_.add_storage({.size_bytes = element.integer("bytes"),
                          .live_at_end = element.flag_or("live_at_end", false),
                          .unordered_writes = element.flag_or("unordered_writes", false)});
  }

  void use_value(const Element& element) {
    element.allow_keys({"id", "storage", "name", "kind", "overwrites", "bytes", "type", "shape"});
    ValueSpec spec;
    spec.storage =
        resolve<StorageId>(element, storages_, element.integer("storage"), "storage", "storage");
    spec.name = element.text_or("name", "");
    if (!parse_value_kind(element.text_or("kind", "activation"), spec.kind))
      element.refuse("kind",
                     "is none of activation, input, parameter, gradient, optimizer_state, output");
    if (!parse_data_type(element.text_or("type", "unknown"), spec.data_type))
      element.refuse("type", "is no data type, such as float32");
    if (element.has("overwrites"))
      spec.overwrites =
          resolve<ValueId>(element, values_, element.integer("overwrites"), "overwrites", "value");
    spec.size_bytes = element.integer_or("bytes", -1);
    if (element.has("bytes") && spec.size_bytes < 0)
      element.refuse("bytes", fmt::format("is {}; sizes are 0 or more", spec.size_bytes));
    if (element.has("shape")) spec.shape = element.integers(element.at("shape"), "shape");
    take_id(element, values_);
    builder_.add_value(spec);
  }

  std::vector<ValueId> value_ids(const Element& element, const char* key) const {
    std::vector<ValueId> ids;
    if (!element.has(key)) return ids;
    const std::vector<std::int64_t> written = element.integers(element.at(key), key);
    for (std::size_t i = 0; i < written.size(); ++i)
      ids.push_back(
          resolve<ValueId>(element, values_, written[i], fmt::format("{}[{}]", key, i), "value"));
    return ids;
  }

  std::uint8_t flags(const Element& element) const {
    static constexpr std::pair<std::string_view, OpFlag> kNames[] = {
        {"random", kRandom},
        {"host_synchronising", kHostSynchronising},
        {"recomputable", kRecomputable},
        {"side_effect", kSideEffect}};
    if (!element.has("flags")) return kNoFlags;
    if (!element.at("flags").is_array()) element.refuse("flags", "is not an array");
    std::uint8_t bits = kNoFlags;
    for (const Json& name : element.at("flags")) {
      std::uint8_t bit = 0;
      for (const auto& [known, flag] : kNames) {
        if (name.is_string() && name.get_ref<const std::string&>() == known) bit = flag;
      }
      if (bit == 0)
        element.refuse("flags",
                       "holds something other than random, host_synchronising, recomputable, "
                       "side_effect");
      bits |= bit;
    }
    return bits;
  }

  void use_op(const Element& element) {
    element.allow_keys({"id", "kind", "name", "operands", "results", "after", "inplace_operand",
                        "inplace_result", "workspace_bytes", "cost_ns", "phase", "flags",
                        "attributes"});
    OpSpec spec;
    spec.kind = element.text_or("kind", "");
    spec.name = element.text_or("name", "");
    spec.operands = value_ids(element, "operands");
    spec.results = value_ids(element, "results");
    for (const char* key : {"inplace_operand", "inplace_result"}) {
      if (!element.has(key)) continue;
      const auto v = resolve<ValueId>(element, values_, element.integer(key), key, "value");
      (std::string_view(key) == "inplace_operand" ? spec.inplace_operand : spec.inplace_result) = v;
    }
    spec.workspace_bytes = element.integer_or("workspace_bytes", 0);
    spec.cost_ns = element.real_or("cost_ns", 0);
    if (!parse_phase(element.text_or("phase", "forward"), spec.phase))
      element.refuse("phase", "is none of forward, loss, backward, optimizer");
    spec.flags = flags(element);
    if (element.has("attributes")) {
      if (!element.at("attributes").is_object()) element.refuse("attributes", "is not an object");
      for (const auto& [key, list] : element.at("attributes").items())
        spec.attributes.emplace_back(key, element.integers(list, "attributes." + key));
    }
    take_id(element, ops_);
    // `after` may name ops that come later in the file: kept as written until all ids are known.
    if (element.has("after"))
      later_.push_back({ops_.count() - 1, element.integers(element.at("after"), "after")});
    builder_.add_op(spec);
  }

  void resolve_later_ops() {
    for (const auto& [op, ids] : later_) {
      for (const std::int64_t id : ids) {
        const std::int32_t index = ops_.find(id);
        if (index < 0)
          throw InvalidFile(file_, fmt::format("ops[{}].after", op),
                            fmt::format("names op {}, which does not exist", id));
        builder_.add_after(OpId(static_cast<std::int32_t>(op)), OpId(index));
      }
    }
  }

  void check_header(const Json& rest) const {
    if (!rest.is_object()) throw InvalidFile(file_, "byte 0", "is not a JSON object");
    if (!rest.contains("format") || rest["format"] != "plimsoll-graph")
      throw InvalidFile(file_, "format", "is not 'plimsoll-graph'");
    if (!rest.contains("version") || rest["version"] != 1)
      throw InvalidFile(file_, "version", "is not 1, the version this program reads");
    for (const char* key : {"storages", "values", "ops"}) {
      if (!rest.contains(key)) throw InvalidFile(file_, key, "is missing");
    }
  }

  static std::string place_of(const InvalidGraph& error) {
    switch (error.place()) {
      case InvalidGraph::Place::kStorage:
        return fmt::format("storages[{}]", error.index());
      case InvalidGraph::Place::kValue:
        return fmt::format("values[{}]", error.index());
      case InvalidGraph::Place::kOp:
        return fmt::format("ops[{}]", error.index());
      case InvalidGraph::Place::kGraph:
        break;
    }
    return "";
  }

  const std::string& file_;
  GraphBuilder builder_;
  std::string section_;
  std::size_t index_ = 0;
  std::unordered_map<std::string, bool> seen_;
  IdTable storages_, values_, ops_;
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> later_;
};

}  // namespace

Graph read_json(std::string_view text, const std::string& file) { return Reader(file).read(text); }

Graph read_json_file(const std::filesystem::path& path) {
  return read_json(read_file_bytes(path), path.string());
}

}  // namespace plimsoll::graph
