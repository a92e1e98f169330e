// SPDX-License-Identifier: Apache-2.0
// One training step of a layer net as a graph, so that planning needs no capture.
//
// Nouns: StepModel, StepGraphOptions.
#pragma once

#include <cstdint>

#include "plimsoll/graph/graph.h"
#include "plimsoll/plan/layer_net.h"

namespace plimsoll::plan {

enum class StepModel : std::uint8_t {
  // SuperNeurons' own (see superneurons.h): layer outputs and gradients, nothing else.
  kPaper,
  // As stock LibTorch runs torchvision's nets: ReLU and the residual sum in place, pooling with
  // indices, dropout with a byte mask, batch statistics saved, gradients summed in place.
  kStock,
};

struct StepGraphOptions {
  StepModel model = StepModel::kStock;
  // kStock only: weights, their gradients and one momentum each with an SGD update per parameter,
  // and the batch. Off: activations and their gradients alone.
  bool parameters = true;
  bool keep_gradients = false;  // they live to the end of the step, as stock keeps them
  // Convolutions may use a workspace, and then run faster: none, or an eighth of the im2col matrix,
  // or all of it. The figures are a model, not cuDNN's.
  bool workspaces = false;
};

// Every op carries its "flops" as an attribute; forward ops are recomputable, dropout is random.
// Cost: O(layers).
graph::Graph make_step_graph(const LayerNet& net, const StepGraphOptions& options);

}  // namespace plimsoll::plan
