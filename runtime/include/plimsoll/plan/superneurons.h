// SPDX-License-Identifier: Apache-2.0
// SuperNeurons' own layer model and runtime, simulated: the yardstick for "better than".
//
// Nouns: SuperNeuronsReport, RecomputeMode.
//
// What the model counts: layer outputs and the buffers of their gradients (dx); not the batch, not
// parameters, not workspace. FORK writes one output per successor; its dx accumulates into the
// gradient of the first. JOIN writes a new output, dx of its first input is dy, every other input
// gets a copy. ACT, LRN and SOFTMAX write dx over dy.
// What a backward layer needs, beside dy and dx: CONV, FC, BN their input; ACT, LRN, POOL input and
// output; DROP, FORK, JOIN nothing.
//
// Source: Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, "SuperNeurons: Dynamic GPU Memory Management
// for Training Deep Neural Networks", PPoPP 2018, sections 3.2 to 3.4.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "plimsoll/plan/layer_net.h"

namespace plimsoll::plan {

enum class RecomputeMode : std::uint8_t {
  kSpeed,      // a segment is recomputed once, its outputs are kept until their last use
  kMemory,     // what only led to the wanted output is dropped right away
  kCostAware,  // kMemory for the segments whose sum exceeds the layer peak, else kSpeed
};
constexpr std::size_t kRecomputeModes = 3;

// All sizes in bytes, of the whole batch.
struct SuperNeuronsReport {
  std::int64_t baseline_bytes = 0;  // every buffer at once
  std::int64_t liveness_bytes = 0;  // freed after the last use
  // Also CONV outputs sent to the host after their last forward use; fetched one CONV ahead.
  std::int64_t offload_bytes = 0;
  // Checkpoints (CONV, FC, JOIN, FORK) on the host and fetched where needed, the rest recomputed;
  // by RecomputeMode. A fetched checkpoint stays where its next use is at most 8 steps away.
  std::array<std::int64_t, kRecomputeModes> recompute_bytes = {};
  std::array<std::int64_t, kRecomputeModes> extra_recomputes = {};
  // The largest backward layer: distinct buffers, and with aliases counted twice, as the paper's
  // own figures do.
  std::int64_t layer_peak_bytes = 0;
  std::int64_t layer_peak_as_coded_bytes = 0;
  std::string layer_peak_at;
  // Bytes to the host and back in one step under kCostAware.
  std::int64_t offloaded_bytes = 0;
  std::int64_t prefetched_bytes = 0;
  std::size_t layers = 0;  // as the paper counts
};

// Cost: O(layers) time and memory for nets whose segments have bounded length.
SuperNeuronsReport simulate_superneurons(const LayerNet& net);

}  // namespace plimsoll::plan
