// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "plimsoll/graph/json.h"

namespace plimsoll::graph {
namespace {

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Appends the members of one element, with commas between them.
class Line {
 public:
  explicit Line(std::string& out) : out_(out) { out_ += "  {"; }
  void close(bool last) { out_ += last ? "}\n" : "},\n"; }

  void integer(std::string_view key, std::int64_t value) {
    open(key);
    fmt::format_to(std::back_inserter(out_), "{}", value);
  }
  void real(std::string_view key, double value) {
    open(key);
    fmt::format_to(std::back_inserter(out_), "{}", value);
  }
  void text(std::string_view key, std::string_view value) {
    open(key);
    out_ += quoted(value);
  }
  void yes(std::string_view key) {
    open(key);
    out_ += "true";
  }
  void raw(std::string_view key, std::string_view json) {
    open(key);
    out_ += json;
  }
  template <typename Id>
  void ids(std::string_view key, std::span<const Id> list) {
    if (list.empty()) return;
    open(key);
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i)
      fmt::format_to(std::back_inserter(out_), "{}{}", i == 0 ? "" : ",", list[i].value());
    out_ += ']';
  }

 private:
  void open(std::string_view key) {
    if (!first_) out_ += ',';
    first_ = false;
    fmt::format_to(std::back_inserter(out_), "\"{}\":", key);
  }
  std::string& out_;
  bool first_ = true;
};

std::string integers(std::span<const std::int64_t> list) {
  return fmt::format("[{}]", fmt::join(list, ","));
}

void write_storage(const Graph& graph, StorageId s, std::string& out) {
  Line line(out);
  line.integer("bytes", graph.size_bytes(s));
  if (graph.live_at_end(s)) line.yes("live_at_end");
  if (graph.unordered_writes(s)) line.yes("unordered_writes");
  line.close(s.index() + 1 == graph.storage_count());
}

void write_value(const Graph& graph, ValueId v, std::string& out) {
  Line line(out);
  line.integer("storage", graph.storage(v).value());
  if (!graph.name(v).empty()) line.text("name", graph.name(v));
  if (graph.kind(v) != ValueKind::kActivation) line.text("kind", value_kind_name(graph.kind(v)));
  if (graph.overwrites(v).valid()) line.integer("overwrites", graph.overwrites(v).value());
  if (graph.size_bytes(v) != graph.size_bytes(graph.storage(v)))
    line.integer("bytes", graph.size_bytes(v));
  if (graph.data_type(v) != DataType::kUnknown)
    line.text("type", data_type_name(graph.data_type(v)));
  if (graph.has_shape(v)) line.raw("shape", integers(graph.shape(v)));
  line.close(v.index() + 1 == graph.value_count());
}

void write_flags(std::uint8_t flags, Line& line) {
  if (flags == kNoFlags) return;
  std::string list;
  const auto add = [&](OpFlag flag, std::string_view name) {
    if ((flags & flag) != 0) list += fmt::format("{}\"{}\"", list.empty() ? "" : ",", name);
  };
  add(kRandom, "random");
  add(kHostSynchronising, "host_synchronising");
  add(kRecomputable, "recomputable");
  add(kSideEffect, "side_effect");
  line.raw("flags", fmt::format("[{}]", list));
}

void write_op(const Graph& graph, OpId o, std::string& out) {
  Line line(out);
  line.text("kind", graph.kind(o));
  if (graph.name(o) != graph.kind(o)) line.text("name", graph.name(o));
  line.ids("operands", graph.operands(o));
  line.ids("results", graph.results(o));
  line.ids("after", graph.given_after(o));
  if (graph.inplace_operand(o).valid()) {
    line.integer("inplace_operand", graph.inplace_operand(o).value());
    line.integer("inplace_result", graph.inplace_result(o).value());
  }
  if (graph.workspace_bytes(o) != 0) line.integer("workspace_bytes", graph.workspace_bytes(o));
  if (graph.cost_ns(o) != 0) line.real("cost_ns", graph.cost_ns(o));
  if (graph.phase(o) != Phase::kForward) line.text("phase", phase_name(graph.phase(o)));
  write_flags(graph.flags(o), line);
  const auto attributes = graph.attributes(o);
  if (!attributes.empty()) {
    std::string members;
    for (const auto& [key, values] : attributes)
      members += fmt::format("{}{}:{}", members.empty() ? "" : ",", quoted(key), integers(values));
    line.raw("attributes", fmt::format("{{{}}}", members));
  }
  line.close(o.index() + 1 == graph.op_count());
}

}  // namespace

std::string write_json(const Graph& graph) {
  std::string out = "{\n \"format\": \"plimsoll-graph\",\n \"version\": 1,\n \"storages\": [\n";
  for (std::size_t i = 0; i < graph.storage_count(); ++i) write_storage(graph, StorageId(i), out);
  out += " ],\n \"values\": [\n";
  for (std::size_t i = 0; i < graph.value_count(); ++i) write_value(graph, ValueId(i), out);
  out += " ],\n \"ops\": [\n";
  for (std::size_t i = 0; i < graph.op_count(); ++i) write_op(graph, OpId(i), out);
  out += " ]\n}\n";
  return out;
}

}  // namespace plimsoll::graph
