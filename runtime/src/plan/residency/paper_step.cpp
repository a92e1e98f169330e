// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "plimsoll/graph/builder.h"

#include "layer_buffers.h"
#include "step_makers.h"

namespace plimsoll::plan {

using graph::GraphBuilder;
using graph::OpSpec;
using graph::StorageId;
using graph::ValueId;
using graph::ValueKind;

namespace {

class PaperStep {
 public:
  explicit PaperStep(const LayerNet& net) : net_(net), buffers_(derive_layer_buffers(net)) {
    present_.resize(buffers_.buffers.size());
    storage_.resize(buffers_.buffers.size());
  }

  graph::Graph make() {
    for (std::size_t i = 0; i < buffers_.buffers.size(); ++i)
      storage_[i] = builder_.add_storage({.size_bytes = buffers_.buffers[i].bytes});
    const int layers = static_cast<int>(net_.layers().size());
    for (int layer = 0; layer < layers; ++layer) forward(layer);
    for (int layer = layers - 1; layer >= 0; --layer) backward(layer);
    return builder_.build();
  }

 private:
  ValueId write(int buffer) {
    const auto b = static_cast<std::size_t>(buffer);
    const ValueKind kind =
        buffers_.buffers[b].is_output ? ValueKind::kActivation : ValueKind::kGradient;
    return present_[b] = builder_.add_value(
               {.storage = storage_[b], .kind = kind, .overwrites = present_[b]});
  }
  void add(int layer, const std::vector<int>& reads, const std::vector<int>& writes, bool forward) {
    const Layer& it = net_.layers()[std::size_t(layer)];
    const std::string kind = std::string(layer_kind_name(it.kind)) + (forward ? "" : "_backward");
    const std::string name = it.name + (forward ? "" : " backward");
    const double flops = net_.forward_flops(layer) * (forward ? 1 : backward_factor(it.kind));
    OpSpec spec;
    spec.kind = kind;
    spec.name = name;
    for (const int b : reads) spec.operands.push_back(present_[std::size_t(b)]);
    for (const int b : writes) spec.results.push_back(write(b));
    spec.phase = forward ? graph::Phase::kForward : graph::Phase::kBackward;
    if (forward) spec.flags = graph::kRecomputable;
    if (forward && it.kind == LayerKind::kDropout) spec.flags |= graph::kRandom;
    spec.attributes = {{"flops", {std::llround(flops)}}};
    builder_.add_op(spec);
  }

  void forward(int layer) {
    add(layer, buffers_.inputs[std::size_t(layer)], buffers_.outputs[std::size_t(layer)], true);
  }
  void backward(int layer) {
    const LayerKind kind = net_.layers()[std::size_t(layer)].kind;
    const auto& dx = buffers_.input_gradients[std::size_t(layer)];
    std::vector<int> reads, writes;
    for (const int b : buffers_.needs[std::size_t(layer)])
      if (present_[std::size_t(b)].valid()) reads.push_back(b);
    for (const int b : dx) {
      // JOIN hands dy on as it is and copies it for its other inputs.
      const bool is_handed_on = kind == LayerKind::kJoin && b == dx.front();
      if (!is_handed_on && std::find(writes.begin(), writes.end(), b) == writes.end())
        writes.push_back(b);
    }
    add(layer, reads, writes, false);
  }

  const LayerNet& net_;
  LayerBuffers buffers_;
  GraphBuilder builder_;
  std::vector<StorageId> storage_;
  std::vector<ValueId> present_;  // the version of each buffer, invalid before it is written
};

}  // namespace

double backward_factor(LayerKind kind) {
  return kind == LayerKind::kConvolution || kind == LayerKind::kFullyConnected ? 2 : 1;
}

graph::Graph make_paper_step(const LayerNet& net) { return PaperStep(net).make(); }

}  // namespace plimsoll::plan
