// SPDX-License-Identifier: Apache-2.0
#include "rewrite/pattern.h"

#include <algorithm>
#include <array>

namespace plimsoll::rewrite {
namespace {

using graph::Graph;
using graph::OpId;
using graph::ValueId;

template <std::size_t kCount>
bool listed(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 2> kConcats = {"Concat", "aten.cat"};
constexpr std::array<std::string_view, 2> kConvolutions = {"Conv", "aten.convolution"};
constexpr std::array<std::string_view, 15> kChannelwise = {
    "Relu", "LeakyRelu", "Elu",       "Sigmoid",     "HardSigmoid",
    "Tanh", "Clip",      "HardSwish", "Gelu",        "Swish",
    "Mish", "Softplus",  "MaxPool",   "AveragePool", "GlobalAveragePool"};

// Attributes of one number.
std::int64_t attribute_or(const Graph& graph, OpId o, std::string_view key,
                          std::int64_t otherwise) {
  const auto values = graph.attribute(o, key);
  return values.empty() ? otherwise : values[0];
}

bool has_channels(const Graph& graph, ValueId v) {
  return graph.has_shape(v) && graph.shape(v).size() >= 3 && graph.shape(v)[1] > 0;
}

// No state, no order of its own, no version of a storage: only data goes in and out.
bool is_plain(const Graph& graph, OpId o) {
  if (graph.has_flag(o, graph::kRandom) || graph.has_flag(o, graph::kSideEffect) ||
      !graph.given_after(o).empty())
    return false;
  const auto results = graph.results(o);
  const bool versions = std::any_of(results.begin(), results.end(), [&](ValueId v) {
    return graph.overwrites(v).valid() || graph.unordered_writes(graph.storage(v));
  });
  // An op named in another's `after` has a successor that reads nothing of it.
  const auto successors = graph.successors(o);
  return !versions && std::all_of(successors.begin(), successors.end(), [&](OpId next) {
    const auto operands = graph.operands(next);
    return std::any_of(operands.begin(), operands.end(),
                       [&](ValueId v) { return graph.producer(v) == o; });
  });
}

bool same_rows(const Graph& graph, std::span<const ValueId> parts, ValueId whole) {
  std::int64_t channels = 0;
  for (const ValueId v : parts) {
    if (!has_channels(graph, v)) return false;
    channels += channels_of(graph, v);
  }
  return has_channels(graph, whole) && channels == channels_of(graph, whole);
}

}  // namespace

std::int64_t channels_of(const Graph& graph, ValueId v) { return graph.shape(v)[1]; }

bool may_vanish(const Graph& graph, ValueId v) {
  const graph::StorageId s = graph.storage(v);
  return graph.producer(v).valid() && graph.values(s).size() == 1 && !graph.live_at_end(s) &&
         has_channels(graph, v);
}

bool is_concat(const Graph& graph, OpId o) {
  if (!listed(kConcats, graph.kind(o)) || graph.results(o).size() != 1 ||
      graph.operands(o).size() < 2 || !is_plain(graph, o))
    return false;
  const ValueId whole = graph.results(o)[0];
  if (!same_rows(graph, graph.operands(o), whole)) return false;
  const std::int64_t axis = attribute_or(graph, o, "axis", 1);
  const auto rank = static_cast<std::int64_t>(graph.shape(whole).size());
  return axis == 1 || axis + rank == 1;
}

bool is_concat_conv(const Graph& graph, OpId o) {
  return graph.kind(o) == "ConcatConv" && graph.results(o).size() == 1 &&
         graph.operands(o).size() >= 2 && is_plain(graph, o) &&
         has_channels(graph, graph.results(o)[0]) &&
         std::all_of(graph.operands(o).begin(), graph.operands(o).end(),
                     [&](ValueId v) { return has_channels(graph, v); });
}

bool is_split_gradient(const Graph& graph, OpId o) {
  if (graph.kind(o) != "ConvBackwardData" || graph.results(o).size() != 1 || !is_plain(graph, o))
    return false;
  const ValueId whole = graph.results(o)[0];
  if (!may_vanish(graph, whole) || graph.consumers(whole).size() != 1) return false;
  const OpId split = graph.consumers(whole)[0];
  return graph.kind(split) == "Split" && is_plain(graph, split) &&
         graph.operands(split).size() == 1 && graph.results(split).size() >= 2 &&
         attribute_or(graph, split, "axis", 1) == 1 &&
         same_rows(graph, graph.results(split), whole);
}

Role role_of(const Graph& graph, OpId o, ValueId v) {
  const auto operands = graph.operands(o);
  if (graph.results(o).size() != 1 || !is_plain(graph, o) || operands.empty() || operands[0] != v ||
      std::count(operands.begin(), operands.end(), v) != 1)
    return Role::kNone;
  if (graph.kind(o) == "ConvBackwardWeight" && operands.size() == 2 &&
      attribute_or(graph, o, "group", 1) == 1)
    return Role::kWeightGradient;
  if (!has_channels(graph, graph.results(o)[0])) return Role::kNone;
  if (listed(kConvolutions, graph.kind(o))) {
    const std::int64_t group = attribute_or(graph, o, "group", 1);
    if (group == 1) return Role::kSum;
    const bool depthwise =
        group == channels_of(graph, v) && channels_of(graph, graph.results(o)[0]) % group == 0;
    return depthwise ? Role::kDepthwise : Role::kNone;
  }
  const bool channelwise = operands.size() == 1 && (listed(kChannelwise, graph.kind(o)) ||
                                                    graph.kind(o) == "BatchNormalization");
  return channelwise && channels_of(graph, graph.results(o)[0]) == channels_of(graph, v)
             ? Role::kChannelwise
             : Role::kNone;
}

}  // namespace plimsoll::rewrite
