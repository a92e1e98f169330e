// SPDX-License-Identifier: Apache-2.0
// The buffers of SuperNeurons' layer model and who needs them when.
//
// Nouns: Buffer, LayerBuffers. Step i < n is layer i forward, step 2n - 1 - i is layer i backward.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/plan/layer_net.h"

namespace plimsoll::plan {

struct Buffer {
  std::int64_t bytes = 0;
  int layer = 0;                    // that writes it
  bool is_output = false;           // a layer's output, else a gradient
  int last_forward = -1;            // the last forward step that touches it, -1: none
  std::vector<int> backward_steps;  // that need it, ascending
};

// Indices into `buffers` throughout.
struct LayerBuffers {
  std::vector<Buffer> buffers;
  std::vector<std::vector<int>> inputs;      // by layer; the batch is not listed
  std::vector<std::vector<int>> outputs;     // by layer
  std::vector<std::vector<int>> needs;       // by layer, for its backward; distinct, sorted
  std::vector<std::int64_t> as_coded_bytes;  // by layer: as needs, aliases counted twice
  std::vector<std::vector<int>> output_gradients, input_gradients;  // by layer

  std::int64_t bytes_of(const std::vector<int>& list) const;
};

LayerBuffers derive_layer_buffers(const LayerNet& net);

// Whether the kind's output is kept on the host rather than recomputed.
bool is_checkpoint(LayerKind kind);

}  // namespace plimsoll::plan
