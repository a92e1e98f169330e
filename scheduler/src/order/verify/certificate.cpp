// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/order/certificate.h"

#include <array>
#include <limits>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

#include "order/verify/search.h"

namespace plimsoll::order {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kKinds = {"start_end", "cut", "exhausted"};

class Digest {
 public:
  void add(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash_ ^= (static_cast<std::uint64_t>(value) >> shift) & 0xff;
      hash_ *= 0x100000001b3ULL;
    }
  }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<std::int64_t>(static_cast<unsigned char>(c)));
  }
  template <typename Ids>
  void add_ids(const Ids& ids) {
    add(static_cast<std::int64_t>(ids.size()));
    for (const auto id : ids) add(static_cast<std::int64_t>(id.value()));
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

std::string checksum(const Json& body) {
  Digest digest;
  digest.add(body.dump());
  return fmt::format("{:016x}", digest.value());
}

Json to_json(const Certificate& certificate) {
  Json body;
  body["format"] = "plimsoll-certificate";
  body["version"] = 1;
  body["graph_digest"] = fmt::format("{:016x}", certificate.graph_digest);
  body["peak_bytes"] = certificate.peak_bytes;
  body["lower_bound_bytes"] = certificate.lower_bound_bytes;
  body["proof"] = kKinds[static_cast<std::size_t>(certificate.kind)];
  body["op"] = certificate.op;
  body["separators"] = certificate.separators;
  body["order"] = certificate.order;
  return body;
}

class Fields {
 public:
  Fields(const Json& json, const std::string& file) : json_(json), file_(file) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& problem) const {
    throw InvalidFile(file_, key, problem);
  }
  const Json& at(const char* key) const {
    if (!json_.contains(key)) refuse(key, "is missing");
    return json_.at(key);
  }
  std::int64_t integer(const Json& value, const std::string& key, std::int64_t low,
                       std::int64_t high) const {
    // An unsigned value beyond 2^63 turns negative here and is refused as below `low`.
    if (!value.is_number_integer()) refuse(key, "is not a whole number");
    const auto number = value.get<std::int64_t>();
    if (number < low || number > high)
      refuse(key, fmt::format("is {}, not between {} and {}", number, low, high));
    return number;
  }
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const {
    return integer(at(key), key, low, high);
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) refuse(key, "is not a string");
    return at(key).get<std::string>();
  }
  template <typename T>
  std::vector<T> integers(const char* key, std::int64_t low, std::int64_t high) const {
    if (!at(key).is_array()) refuse(key, "is not an array");
    std::vector<T> list;
    for (const Json& value : at(key))
      list.push_back(
          static_cast<T>(integer(value, fmt::format("{}[{}]", key, list.size()), low, high)));
    return list;
  }

 private:
  const Json& json_;
  const std::string& file_;
};

Json parse_shallow(std::string_view text, const std::string& file) {
  try {
    return Json::parse(text.begin(), text.end(), [&file](int depth, Json::parse_event_t, Json&) {
      if (depth > 2) throw InvalidFile(file, "", "is nested deeper than a certificate");
      return true;
    });
  } catch (const Json::parse_error& error) {
    throw InvalidFile(file, fmt::format("byte {}", error.byte), "is not valid JSON");
  } catch (const Json::exception& error) {
    throw InvalidFile(file, "", error.what());
  }
}

}  // namespace

std::uint64_t graph_digest(const graph::Graph& graph) {
  Digest digest;
  digest.add(static_cast<std::int64_t>(graph.op_count()));
  digest.add(static_cast<std::int64_t>(graph.storage_count()));
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const graph::StorageId s(i);
    digest.add(graph.size_bytes(s));
    digest.add(static_cast<std::int64_t>(graph.live_at_start(s)) * 2 +
               static_cast<std::int64_t>(graph.live_at_end(s)));
    digest.add_ids(graph.births(s));
  }
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const graph::OpId o(i);
    digest.add_ids(graph.touched(o));
    digest.add_ids(graph.predecessors(o));
    digest.add(graph.workspace_bytes(o));
    digest.add(static_cast<std::int64_t>(graph.inplace_storage(o).value()));
  }
  return digest.value();
}

Certificate make_certificate(const graph::Graph& graph, const OrderResult& result) {
  if (result.order.size() != graph.op_count())
    throw InvalidArgument(
        fmt::format("a result of {} ops for a graph of {}", result.order.size(), graph.op_count()));
  Certificate certificate;
  certificate.graph_digest = graph_digest(graph);
  certificate.order.reserve(result.order.size());
  for (const graph::OpId o : result.order) certificate.order.push_back(o.value());
  certificate.peak_bytes = result.peak_bytes;
  certificate.lower_bound_bytes = result.lower_bound_bytes;
  if (result.proof == BoundProof::kExhausted) {
    certificate.kind = Certificate::Kind::kExhausted;
    // Not the solver's: those may hold for its fused graph only.
    const std::vector<std::uint8_t> separates = detail::find_separators(graph, certificate.order);
    for (std::size_t step = 0; step < separates.size(); ++step) {
      if (separates[step] != 0) certificate.separators.push_back(static_cast<std::int64_t>(step));
    }
  } else if (result.bound_op.valid()) {
    // The trivial bound of an op is at most its cut.
    certificate.kind = Certificate::Kind::kCut;
    certificate.op = result.bound_op.value();
  }
  return certificate;
}

std::string write_certificate(const Certificate& certificate) {
  Json body = to_json(certificate);
  const std::string sum = checksum(body);
  body["checksum"] = sum;
  return body.dump() + "\n";
}

Certificate read_certificate(std::string_view text, const std::string& file) {
  const Json json = parse_shallow(text, file);
  if (!json.is_object()) throw InvalidFile(file, "", "is not a JSON object");
  const Fields fields(json, file);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMostOps = std::numeric_limits<std::int32_t>::max();
  if (fields.text("format") != "plimsoll-certificate")
    fields.refuse("format", "is not 'plimsoll-certificate'");
  fields.integer("version", 1, 1);
  Certificate certificate;
  const std::string digest = fields.text("graph_digest");
  if (digest.size() != 16 || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
    fields.refuse("graph_digest", "is not 16 hexadecimal digits");
  certificate.graph_digest = std::stoull(digest, nullptr, 16);
  certificate.peak_bytes = fields.integer("peak_bytes", 0, kMost);
  certificate.lower_bound_bytes = fields.integer("lower_bound_bytes", 0, kMost);
  const std::string proof = fields.text("proof");
  std::size_t kind = 0;
  while (kind < kKinds.size() && kKinds[kind] != proof) ++kind;
  if (kind == kKinds.size()) fields.refuse("proof", "is none of start_end, cut, exhausted");
  certificate.kind = static_cast<Certificate::Kind>(kind);
  certificate.op = static_cast<std::int32_t>(fields.integer("op", -1, kMostOps));
  certificate.separators = fields.integers<std::int64_t>("separators", 0, kMostOps);
  certificate.order = fields.integers<std::int32_t>("order", 0, kMostOps);
  const std::string sum = fields.text("checksum");
  if (json.size() != to_json(certificate).size() + 1)
    fields.refuse("", "has keys that are none of a certificate's");
  if (sum != checksum(to_json(certificate)))
    fields.refuse("checksum", "does not match the rest: the file was changed or cut off");
  return certificate;
}

}  // namespace plimsoll::order
