// SPDX-License-Identifier: Apache-2.0
// Masks and noise that take two values, kept as bits from the forward pass to the backward pass.
//
// Noun: BitMasks.
//
//     dropout -> mask -> mul ........................ mul backward       1 byte an element
//     dropout -> mask -> mul, pack -> bits ..... unpack -> mask again -> mul backward     1 bit
//
// The codec is two more ops, with their cost; a planner compares the graph with and without it.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/graph/graph.h"

namespace plimsoll::plan {

struct BitMasks {
  graph::Graph graph;
  std::vector<graph::StorageId> packed;  // as numbered in the graph that was given
  std::int64_t saved_bytes = 0;          // between the passes, over all of them
};

// Two values: data type bool, or named by the producer's attribute "two_valued" (indices of
// results, whose data type says how large an element is). Of those, every storage with one value
// that is idle for two ops or more gets a pack_bits op after its last use before its longest idle
// stretch and an unpack_bits op before the first one after it. Storages, values and their ids stay;
// new ones stand at the end. Without any such storage the graph comes back empty.
// Cost: O((ops + edges) x masks).
BitMasks pack_bit_masks(const graph::Graph& graph);

}  // namespace plimsoll::plan
