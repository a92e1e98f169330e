// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/rewrite/rewrite.h"

#include <algorithm>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/graph/builder.h"

#include "rewrite/pattern.h"

namespace plimsoll::rewrite {
namespace {

using graph::Graph;
using graph::OpId;
using graph::StorageId;
using graph::ValueId;

using Attributes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

// Whether every reader of `v` can take its parts instead.
bool readers_take_parts(const Graph& graph, ValueId v) {
  const auto readers = graph.consumers(v);
  return may_vanish(graph, v) && !readers.empty() &&
         std::all_of(readers.begin(), readers.end(),
                     [&](OpId o) { return role_of(graph, o, v) != Role::kNone; });
}

// Whether any convolution below `v` becomes a sum of parts.
bool makes_sums(const Graph& graph, ValueId v) {
  std::vector<ValueId> open = {v};
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const OpId o : graph.consumers(open[i])) {
      const Role role = role_of(graph, o, open[i]);
      if (role == Role::kSum) return true;
      const bool goes_on = role == Role::kDepthwise || role == Role::kChannelwise;
      if (goes_on && readers_take_parts(graph, graph.results(o)[0]))
        open.push_back(graph.results(o)[0]);
    }
  }
  return false;
}

// Makes the new graph, op by op in program order.
class Rewriter {
 public:
  Rewriter(const Graph& graph, std::span<const OpId> ops)
      : graph_(graph),
        chosen_(graph.op_count(), 0),
        new_storage_(graph.storage_count()),
        new_value_(graph.value_count()),
        parts_(graph.value_count()),
        widths_(graph.value_count()),
        split_(graph.value_count(), false),
        new_op_(graph.op_count()) {
    for (const OpId o : ops) chosen_[o.index()] = 1;
  }

  Graph rewrite() {
    // What is live from the start first, so that its order stays.
    for (std::size_t i = 0; i < graph_.value_count(); ++i) {
      if (!graph_.producer(ValueId(i)).valid()) value_of(ValueId(i));
    }
    for (const OpId o : graph_.program_order()) rewrite_op(o);
    for (std::size_t i = 0; i < graph_.op_count(); ++i) {
      for (const OpId before : graph_.given_after(OpId(i))) {
        if (new_op_[i].valid() && new_op_[before.index()].valid())
          builder_.add_after(new_op_[i], new_op_[before.index()]);
      }
    }
    return builder_.build();
  }

 private:
  ValueId value_of(ValueId v) {
    ValueId& value = new_value_[v.index()];
    if (value.valid()) return value;
    StorageId& storage = new_storage_[graph_.storage(v).index()];
    if (!storage.valid())
      storage =
          builder_.add_storage({.size_bytes = graph_.size_bytes(graph_.storage(v)),
                                .live_at_end = graph_.live_at_end(graph_.storage(v)),
                                .unordered_writes = graph_.unordered_writes(graph_.storage(v))});
    graph::ValueSpec spec{.storage = storage,
                          .kind = graph_.kind(v),
                          .name = graph_.name(v),
                          .size_bytes = graph_.size_bytes(v),
                          .data_type = graph_.data_type(v)};
    if (graph_.overwrites(v).valid()) spec.overwrites = value_of(graph_.overwrites(v));
    if (graph_.has_shape(v)) spec.shape.emplace(graph_.shape(v).begin(), graph_.shape(v).end());
    value = builder_.add_value(spec);
    return value;
  }

  Attributes attributes_of(OpId o) const {
    Attributes all;
    for (const auto& [key, values] : graph_.attributes(o))
      all.emplace_back(std::string(key), std::vector<std::int64_t>(values.begin(), values.end()));
    return all;
  }

  // All that an op has but operands and results.
  graph::OpSpec frame_of(OpId o) const {
    graph::OpSpec spec;
    spec.kind = graph_.kind(o);
    spec.name = graph_.name(o) == graph_.kind(o) ? std::string_view() : graph_.name(o);
    spec.workspace_bytes = graph_.workspace_bytes(o);
    spec.cost_ns = graph_.cost_ns(o);
    spec.phase = graph_.phase(o);
    spec.flags = graph_.flags(o);
    spec.attributes = attributes_of(o);
    return spec;
  }

  void rewrite_op(OpId o) {
    const auto operands = graph_.operands(o);
    if (chosen_[o.index()] != 0) {
      rewrite_chosen(o);
    } else if (!operands.empty() && !parts_[operands[0].index()].empty()) {
      push_through(o, operands[0]);
    } else {
      copy_op(o);
    }
  }

  void copy_op(OpId o) {
    // The split behind a rewritten data gradient is gone: its results were made already.
    const auto results = graph_.results(o);
    if (std::any_of(results.begin(), results.end(),
                    [this](ValueId v) { return split_[v.index()]; }))
      return;
    graph::OpSpec spec = frame_of(o);
    for (const ValueId v : graph_.operands(o)) spec.operands.push_back(value_of(v));
    for (const ValueId v : results) spec.results.push_back(value_of(v));
    if (graph_.inplace_operand(o).valid()) {
      spec.inplace_operand = value_of(graph_.inplace_operand(o));
      spec.inplace_result = value_of(graph_.inplace_result(o));
    }
    new_op_[o.index()] = builder_.add_op(spec);
  }

  void rewrite_chosen(OpId o) {
    if (is_split_gradient(graph_, o)) return split_gradient(o);
    std::vector<ValueId> parts;
    std::vector<std::int64_t> channels;
    for (const ValueId v : graph_.operands(o)) {
      parts.push_back(value_of(v));
      channels.push_back(channels_of(graph_, v));
    }
    if (is_concat_conv(graph_, o)) return sum_parts(o, parts, channels);
    set_parts(graph_.results(o)[0], parts, channels);
  }

  void set_parts(ValueId v, std::vector<ValueId> parts, std::vector<std::int64_t> channels) {
    parts_[v.index()] = std::move(parts);
    widths_[v.index()] = std::move(channels);
  }

  void push_through(OpId o, ValueId whole) {
    const std::vector<ValueId> parts = parts_[whole.index()];
    const std::vector<std::int64_t> channels = widths_[whole.index()];
    switch (role_of(graph_, o, whole)) {
      case Role::kSum:
        return sum_parts(o, parts, channels);
      case Role::kWeightGradient:
        return slice_parts(o, parts, channels, 1, "weight_channels");
      case Role::kDepthwise:
      case Role::kChannelwise:
        return readers_take_parts(graph_, graph_.results(o)[0])
                   ? keep_parts(o, parts, channels)
                   : slice_parts(o, parts, channels, multiplier(o, whole), "channels");
      case Role::kNone:
        break;
    }
    throw InternalError(fmt::format("op {} reads a concatenation that is gone", o.value()));
  }

  std::int64_t multiplier(OpId o, ValueId whole) const {
    return channels_of(graph_, graph_.results(o)[0]) / channels_of(graph_, whole);
  }

  // One part of `o`: reads part `i` and whatever else `o` reads, besides the concatenation.
  graph::OpSpec part_of(OpId o, std::string_view kind, ValueId part, std::int64_t share,
                        std::int64_t all) {
    graph::OpSpec spec = frame_of(o);
    spec.kind = kind;
    spec.operands = {part};
    if (!is_concat_conv(graph_, o)) {
      const auto operands = graph_.operands(o);
      for (std::size_t i = 1; i < operands.size(); ++i)
        spec.operands.push_back(value_of(operands[i]));
    }
    spec.cost_ns = spec.cost_ns * static_cast<double>(share) / static_cast<double>(all);
    return spec;
  }

  static std::int64_t total(const std::vector<std::int64_t>& channels) {
    std::int64_t sum = 0;
    for (const std::int64_t width : channels) sum += width;
    return sum;
  }

  void sum_parts(OpId o, const std::vector<ValueId>& parts,
                 const std::vector<std::int64_t>& channels) {
    const ValueId y = graph_.results(o)[0];
    const std::string kind = fmt::format("{}.part", graph_.kind(o));
    const StorageId sum = builder_.add_storage(
        {.size_bytes = graph_.size_bytes(graph_.storage(y)), .unordered_writes = true});
    std::vector<ValueId> written;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      graph::OpSpec spec = part_of(o, kind, parts[i], channels[i], total(channels));
      spec.attributes.push_back({"weight_channels", {begin, begin + channels[i]}});
      begin += channels[i];
      written.push_back(builder_.add_value(
          {.storage = sum,
           .data_type = graph_.data_type(y),
           .shape = std::vector<std::int64_t>(graph_.shape(y).begin(), graph_.shape(y).end())}));
      spec.results = {written.back()};
      builder_.add_op(spec);
    }
    finish(o, fmt::format("{}.finish", graph_.kind(o)), written);
  }

  // Each part writes its slice of the result. `key` names what the slice is of.
  void slice_parts(OpId o, const std::vector<ValueId>& parts,
                   const std::vector<std::int64_t>& channels, std::int64_t factor,
                   const char* key) {
    const ValueId y = graph_.results(o)[0];
    const std::string kind = fmt::format("{}.part", graph_.kind(o));
    const std::int64_t all = total(channels);
    const std::int64_t bytes = graph_.size_bytes(graph_.storage(y));
    const StorageId whole = builder_.add_storage({.size_bytes = bytes, .unordered_writes = true});
    std::vector<ValueId> written;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      graph::OpSpec spec = part_of(o, kind, parts[i], channels[i], all);
      spec.attributes.push_back({"weight_channels", {begin, begin + channels[i]}});
      if (std::string_view(key) == "channels")
        spec.attributes.push_back({key, {begin * factor, (begin + channels[i]) * factor}});
      begin += channels[i];
      written.push_back(builder_.add_value({.storage = whole,
                                            .size_bytes = bytes / all * channels[i],
                                            .data_type = graph_.data_type(y)}));
      spec.results = {written.back()};
      builder_.add_op(spec);
    }
    finish(o, "Join", written);
  }

  // The result stays in parts as well.
  void keep_parts(OpId o, const std::vector<ValueId>& parts,
                  const std::vector<std::int64_t>& channels) {
    const ValueId y = graph_.results(o)[0];
    const std::string kind = fmt::format("{}.part", graph_.kind(o));
    const std::int64_t all = total(channels);
    const std::int64_t factor = channels_of(graph_, y) / all;
    std::vector<ValueId> made;
    std::vector<std::int64_t> widths;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      graph::OpSpec spec = part_of(o, kind, parts[i], channels[i], all);
      spec.attributes.push_back({"weight_channels", {begin, begin + channels[i]}});
      begin += channels[i];
      widths.push_back(channels[i] * factor);
      std::vector<std::int64_t> shape(graph_.shape(y).begin(), graph_.shape(y).end());
      shape[1] = widths.back();
      const std::int64_t bytes = graph_.size_bytes(graph_.storage(y)) / (all * factor) * widths[i];
      made.push_back(builder_.add_value({.storage = builder_.add_storage({.size_bytes = bytes}),
                                         .data_type = graph_.data_type(y),
                                         .shape = shape}));
      spec.results = {made.back()};
      if (graph_.inplace_operand(o).valid() && builder_.size_bytes(parts[i]) == bytes)
        spec.inplace_operand = parts[i];
      builder_.add_op(spec);
    }
    set_parts(y, made, widths);
  }

  // Turns the storage that the parts wrote into the old result, over the same bytes.
  void finish(OpId o, std::string_view kind, const std::vector<ValueId>& written) {
    graph::OpSpec spec = frame_of(o);
    spec.kind = kind;
    spec.operands = written;
    spec.results = {value_of(graph_.results(o)[0])};
    spec.workspace_bytes = 0;
    spec.cost_ns = 0;
    const StorageId y = graph_.storage(graph_.results(o)[0]);
    const bool alone = graph_.births(y).size() == 1;
    if (alone) spec.inplace_operand = written.front();
    new_op_[o.index()] = builder_.add_op(spec);
  }

  // One data gradient a part, straight into the result of the split.
  void split_gradient(OpId o) {
    const OpId split = graph_.consumers(graph_.results(o)[0])[0];
    const auto results = graph_.results(split);
    const std::string kind = fmt::format("{}.part", graph_.kind(o));
    const std::int64_t all = channels_of(graph_, graph_.results(o)[0]);
    std::int64_t begin = 0;
    for (const ValueId v : results) {
      const std::int64_t width = channels_of(graph_, v);
      graph::OpSpec spec = frame_of(o);
      spec.kind = kind;
      for (const ValueId operand : graph_.operands(o)) spec.operands.push_back(value_of(operand));
      spec.results = {value_of(v)};
      spec.cost_ns = spec.cost_ns * static_cast<double>(width) / static_cast<double>(all);
      spec.attributes.push_back({"weight_channels", {begin, begin + width}});
      begin += width;
      split_[v.index()] = true;
      builder_.add_op(spec);
    }
  }

  const Graph& graph_;
  std::vector<std::uint8_t> chosen_;
  std::vector<StorageId> new_storage_;
  std::vector<ValueId> new_value_;
  std::vector<std::vector<ValueId>> parts_;        // by old value: its parts, where it is gone
  std::vector<std::vector<std::int64_t>> widths_;  // and their channels
  std::vector<bool> split_;                        // by old value: made by split_gradient
  std::vector<OpId> new_op_;
  graph::GraphBuilder builder_;
};

}  // namespace

std::vector<Candidate> find_candidates(const Graph& graph) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const OpId o(i);
    if (is_concat(graph, o) && readers_take_parts(graph, graph.results(o)[0])) {
      candidates.push_back({o, static_cast<std::int32_t>(graph.operands(o).size()),
                            !makes_sums(graph, graph.results(o)[0])});
    } else if (is_concat_conv(graph, o)) {
      candidates.push_back({o, static_cast<std::int32_t>(graph.operands(o).size()), false});
    } else if (is_split_gradient(graph, o)) {
      const OpId split = graph.consumers(graph.results(o)[0])[0];
      candidates.push_back({o, static_cast<std::int32_t>(graph.results(split).size()), true});
    }
  }
  return candidates;
}

Graph apply_at(const Graph& graph, std::span<const OpId> ops) {
  const std::vector<Candidate> candidates = find_candidates(graph);
  for (const OpId o : ops) {
    const bool known = std::any_of(candidates.begin(), candidates.end(),
                                   [o](const Candidate& c) { return c.op == o; });
    if (!known)
      throw InvalidArgument(
          fmt::format("op {} is no place to rewrite; see find_candidates", o.value()));
  }
  return Rewriter(graph, ops).rewrite();
}

Rewritten rewrite_where_it_pays(const Graph& graph, const Solve& solve,
                                const RewriteOptions& options) {
  Rewritten best;
  best.graph = graph;
  best.solved = solve(graph);
  best.peak_before_bytes = best.solved.peak_bytes;
  std::vector<Candidate> chosen = find_candidates(graph);
  best.candidates = static_cast<std::int64_t>(chosen.size());
  if (options.exact_only) std::erase_if(chosen, [](const Candidate& c) { return !c.exact; });
  const auto attempt = [&](const std::vector<Candidate>& subset, std::int64_t most) {
    std::vector<OpId> ops;
    ops.reserve(subset.size());
    for (const Candidate& c : subset) ops.push_back(c.op);
    Graph rewritten = apply_at(graph, ops);
    order::OrderResult solved = solve(rewritten);
    if (solved.peak_bytes > most) return false;
    best.graph = std::move(rewritten);
    best.solved = std::move(solved);
    best.applied = subset;
    return true;
  };
  if (chosen.empty() || !attempt(chosen, best.peak_before_bytes - 1)) return best;
  // Leave out again what does not pay, sums before exact ones: fewer changes, same peak.
  std::vector<OpId> order;
  for (const bool exact : {false, true}) {
    for (const Candidate& c : chosen) {
      if (c.exact == exact) order.push_back(c.op);
    }
  }
  for (std::size_t i = 0; i < order.size() && i < options.max_trials; ++i) {
    std::vector<Candidate> fewer = best.applied;
    std::erase_if(fewer, [&](const Candidate& c) { return c.op == order[i]; });
    if (fewer.size() < best.applied.size()) attempt(fewer, best.solved.peak_bytes);
  }
  return best;
}

}  // namespace plimsoll::rewrite
