// SPDX-License-Identifier: Apache-2.0
// Rewriting: the same function with fewer bytes live, by never making a concatenation.
//
// Nouns: Candidate (a place where it applies), Rewritten (the graph with some of them applied).
//
//     x1 x2 x3                x1      x2      x3        conv.part: one input-channel slice of the
//      \ | /                  |       |       |         weight each, adding to one sum S in any
//      concat     becomes  conv.part conv.part conv.part   order (the first to run initialises it)
//        |                      \     |     /
//      conv                      S (one storage)
//        |                         |
//        y                    conv.finish -> y          bias after the last; over S, no new bytes
//
// What is pushed through a concatenation of channels:
//   conv, one group      -> partial sums               floating-point order changes
//   conv, depthwise      -> one part a slice           exact
//   channelwise ops      -> one op a part              exact: activations, pools, batch norm
//   weight gradient      -> slices of the gradient     exact
// and, on its own, data gradient then split -> one data gradient a part (exact).
// Source: Ahn et al., "Ordering Chaos", MLSys 2020, section 3.3. Changed: the parts accumulate in
// an order that the scheduler is free to choose; channelwise operators and the backward pass are
// covered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/order/result.h"

namespace plimsoll::rewrite {

struct Candidate {
  graph::OpId op;  // the concatenation, the convolution of several operands, or the gradient
  std::int32_t parts = 0;
  bool exact = false;  // no sum changes its order
};

// The places where the rewriting applies, ascending by op. Kinds understood: Concat and aten.cat
// along dimension 1; ConcatConv, a convolution over the concatenation of all its operands, as an
// engine runs it that gathers them without a copy; Conv, Relu and its like, MaxPool, AveragePool,
// GlobalAveragePool, BatchNormalization; ConvBackwardWeight(x, dy), ConvBackwardData(dy) then
// Split. Only ops whose values have shapes. Cost: O(ops + edges).
std::vector<Candidate> find_candidates(const graph::Graph& graph);

// Applies some candidates, given by their ops. All other ops stay in place; ids change. New ops
// carry the attributes of the old one and, where they apply, "weight_channels" {begin, end} (of the
// weight's input channels; of all its channels where depthwise) and "channels" {begin, end} (of the
// slice of the result). Errors: InvalidArgument where an op is no candidate.
graph::Graph apply_at(const graph::Graph& graph, std::span<const graph::OpId> ops);

struct Rewritten {
  graph::Graph graph;  // as given where nothing paid
  order::OrderResult solved;
  std::vector<Candidate> applied;
  std::int64_t candidates = 0;
  std::int64_t peak_before_bytes = 0;
};

struct RewriteOptions {
  bool exact_only = false;      // leave out what changes the order of a sum
  std::size_t max_trials = 24;  // solver runs spent on leaving candidates out again
};

using Solve = std::function<order::OrderResult(const graph::Graph&)>;

// Applies candidates only where that lowers the peak that `solve` reaches: all of them first, then
// each is left out again whose absence costs nothing. Deterministic if `solve` is.
// Cost: 2 + max_trials runs of `solve` at most.
Rewritten rewrite_where_it_pays(const graph::Graph& graph, const Solve& solve,
                                const RewriteOptions& options = {});

}  // namespace plimsoll::rewrite
