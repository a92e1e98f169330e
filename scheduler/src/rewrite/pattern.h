// SPDX-License-Identifier: Apache-2.0
// Which ops a concatenation can be pushed through.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plimsoll/graph/graph.h"

namespace plimsoll::rewrite {

enum class Role : std::uint8_t {
  kNone,            // needs the concatenation itself
  kSum,             // convolution of one group: partial sums
  kDepthwise,       // convolution channel by channel
  kChannelwise,     // works on each channel alone
  kWeightGradient,  // slices of the gradient
};

bool is_concat(const graph::Graph& graph, graph::OpId o);
// A convolution over the concatenation of all its operands.
bool is_concat_conv(const graph::Graph& graph, graph::OpId o);
// A data gradient whose one reader splits it along the channels.
bool is_split_gradient(const graph::Graph& graph, graph::OpId o);
// What `o` does with `v`, were that a concatenation of channels.
Role role_of(const graph::Graph& graph, graph::OpId o, graph::ValueId v);
// Whether `v` is alone in its storage, freed at its last reader and produced by an op.
bool may_vanish(const graph::Graph& graph, graph::ValueId v);
std::int64_t channels_of(const graph::Graph& graph, graph::ValueId v);

}  // namespace plimsoll::rewrite
