// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/access_sequence_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::plan {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "plimsoll-access-sequence";
constexpr std::int64_t kVersion = 1;

// The four lists of an operator.
struct TouchList {
  const char* key;
  Access access;
  Lap lap;
};
constexpr std::array<TouchList, 4> kTouchLists = {{
    {"reads", Access::kRead, Lap::kThisStep},
    {"writes", Access::kWrite, Lap::kThisStep},
    {"reads_previous", Access::kRead, Lap::kPreviousStep},
    {"writes_previous", Access::kWrite, Lap::kPreviousStep},
}};

class SequenceReader {
 public:
  explicit SequenceReader(const std::string& file_name) : file_name_(file_name) {}

  AccessSequence read(std::string_view text) {
    const Json root = parse(text);
    check_keys(root, "", {"format", "version", "storages", "ops"});
    if (field(root, "", "format") != kFormat) fail("format", fmt::format("is not \"{}\"", kFormat));
    if (integer(root, "", "version", 0) != kVersion)
      fail("version", fmt::format("is not {}", kVersion));
    const Json& storages = list(field(root, "", "storages"), "storages");
    const Json& ops = list(field(root, "", "ops"), "ops");
    for (std::size_t s = 0; s < storages.size(); ++s)
      guarded(fmt::format("storages[{}]", s),
              [&](const std::string& place) { add_storage(storages[s], place); });
    for (std::size_t op = 0; op < ops.size(); ++op)
      guarded(fmt::format("ops[{}]", op),
              [&](const std::string& place) { add_op(ops[op], place); });
    for (std::size_t s = 0; s < storages.size(); ++s)
      guarded(fmt::format("storages[{}]", s),
              [&](const std::string& place) { release(storages[s], s, ops.size(), place); });
    std::optional<AccessSequence> sequence;
    guarded("the sequence", [&](const std::string&) { sequence = std::move(builder_).build(); });
    return *std::move(sequence);
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& problem) const {
    throw InvalidFile(file_name_, place, problem);
  }

  // Turns what the builder refuses into an error of the file.
  template <typename Work>
  void guarded(const std::string& place, Work work) const {
    try {
      work(place);
    } catch (const InvalidArgument& error) {
      fail(place, error.what());
    }
  }

  Json parse(std::string_view text) const {
    try {
      return Json::parse(text);
    } catch (const Json::parse_error& error) {
      fail(fmt::format("byte {}", error.byte), "is no JSON here");
    }
  }

  void check_keys(const Json& object, const std::string& place,
                  std::initializer_list<const char*> known) const {
    if (!object.is_object()) fail(place.empty() ? "the file" : place, "is not an object");
    for (const auto& item : object.items())
      if (std::ranges::find(known, item.key()) == known.end())
        fail(join(place, item.key()), "is no known key");
  }

  static std::string join(const std::string& place, const std::string& key) {
    return place.empty() ? key : place + "." + key;
  }

  const Json& field(const Json& object, const std::string& place, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(join(place, key), "is missing");
    return *found;
  }

  const Json& list(const Json& value, const std::string& place) const {
    if (!value.is_array()) fail(place, "is not a list");
    // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): a part of the document
    return value;
  }

  std::int64_t whole(const Json& value, const std::string& place) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() >> 63 == 0);
    if (!fits) fail(place, "is not a whole number of 63 bits");
    return value.get<std::int64_t>();
  }

  std::int64_t integer(const Json& object, const std::string& place, const char* key,
                       std::int64_t missing) const {
    const auto found = object.find(key);
    return found == object.end() ? missing : whole(*found, join(place, key));
  }

  void add_storage(const Json& storage, const std::string& place) {
    check_keys(storage, place, {"bytes", "kind", "movable", "released_after"});
    const Json& kind = field(storage, place, "kind");
    if (kind != "persistent" && kind != "transient")
      fail(place + ".kind", "is neither \"persistent\" nor \"transient\"");
    const auto movable = storage.find("movable");
    if (movable != storage.end() && !movable->is_boolean())
      fail(place + ".movable", "is neither true nor false");
    builder_.add_storage(whole(field(storage, place, "bytes"), place + ".bytes"),
                         kind == "persistent" ? StorageKind::kPersistent : StorageKind::kTransient,
                         movable == storage.end() || movable->get<bool>() ? Mobility::kMovable
                                                                          : Mobility::kImmovable);
  }

  void add_op(const Json& op, const std::string& place) {
    check_keys(op, place,
               {"name", "scratch_bytes", "reads", "writes", "reads_previous", "writes_previous"});
    const auto name = op.find("name");
    if (name != op.end() && !name->is_string()) fail(place + ".name", "is not a string");
    const SwapOpId id = builder_.add_op(integer(op, place, "scratch_bytes", 0),
                                        name == op.end() ? "" : name->get<std::string>());
    for (const TouchList& touches : kTouchLists) {
      const auto found = op.find(touches.key);
      if (found == op.end()) continue;
      const std::string where = join(place, touches.key);
      for (const Json& storage : list(*found, where))
        builder_.access(id, storage_id(whole(storage, where)), touches.access, touches.lap);
    }
  }

  void release(const Json& storage, std::size_t index, std::size_t op_count,
               const std::string& place) {
    const auto found = storage.find("released_after");
    if (found == storage.end()) return;
    const auto n = static_cast<std::int64_t>(op_count);
    const std::int64_t position = whole(*found, place + ".released_after");
    if (position < 0 || position >= 2 * n)
      fail(place + ".released_after", fmt::format("{} is not within [0, {})", position, 2 * n));
    builder_.release_after(SwapStorageId(index), SwapOpId(static_cast<std::size_t>(position % n)),
                           position < n ? Lap::kThisStep : Lap::kPreviousStep);
  }

  // Out of range becomes an invalid id, which the builder refuses.
  static SwapStorageId storage_id(std::int64_t index) {
    return index >= 0 && index < std::int64_t{1} << 31
               ? SwapStorageId(static_cast<std::size_t>(index))
               : SwapStorageId();
  }

  const std::string& file_name_;
  AccessSequenceBuilder builder_;
};

Json storage_to_json(const StorageLife& life, std::span<const TimedAccess> accesses) {
  const bool is_persistent = life.kind == StorageKind::kPersistent;
  Json json = {{"bytes", life.size_bytes}, {"kind", is_persistent ? "persistent" : "transient"}};
  if (life.mobility == Mobility::kImmovable) json["movable"] = false;
  if (!is_persistent && life.death != accesses.back().position) json["released_after"] = life.death;
  return json;
}

}  // namespace

std::string access_sequence_to_json(const AccessSequence& sequence) {
  const std::int64_t n = sequence.op_count();
  std::vector<Json> ops;
  for (std::int64_t op = 0; op < n; ++op) {
    const SwapOpId id(static_cast<std::size_t>(op));
    Json json = Json::object();
    if (!sequence.op_name(id).empty()) json["name"] = sequence.op_name(id);
    if (sequence.scratch_bytes(id) > 0) json["scratch_bytes"] = sequence.scratch_bytes(id);
    ops.push_back(std::move(json));
  }
  std::string text =
      fmt::format("{{\"format\": \"{}\", \"version\": {},\n \"storages\": [", kFormat, kVersion);
  for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
    const SwapStorageId storage(static_cast<std::size_t>(s));
    for (const TimedAccess& access : sequence.accesses(storage)) {
      const std::size_t list = (access.writes ? 1U : 0U) + (access.position >= n ? 2U : 0U);
      ops[static_cast<std::size_t>(access.position % n)][kTouchLists[list].key].push_back(s);
    }
    text += s == 0 ? "\n  " : ",\n  ";
    text += storage_to_json(sequence.life(storage), sequence.accesses(storage)).dump();
  }
  text += "],\n \"ops\": [";
  for (std::size_t op = 0; op < ops.size(); ++op) {
    text += op == 0 ? "\n  " : ",\n  ";
    text += ops[op].dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text + "]}\n";
}

AccessSequence access_sequence_from_json(std::string_view text, const std::string& file_name) {
  return SequenceReader(file_name).read(text);
}

}  // namespace plimsoll::plan
