// SPDX-License-Identifier: Apache-2.0
#include "layer_buffers.h"

#include <algorithm>

namespace plimsoll::plan {
namespace {

// Which of its own buffers a layer's backward reads, beside the gradients.
bool needs_input(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConvolution:
    case LayerKind::kFullyConnected:
    case LayerKind::kBatchNorm:
    case LayerKind::kActivation:
    case LayerKind::kLocalResponseNorm:
    case LayerKind::kPool:
      return true;
    default:
      return false;
  }
}

bool needs_output(LayerKind kind) {
  return kind == LayerKind::kActivation || kind == LayerKind::kLocalResponseNorm ||
         kind == LayerKind::kPool || kind == LayerKind::kSoftmax;
}

class Derivation {
 public:
  explicit Derivation(const LayerNet& net) : net_(net) {
    const std::size_t n = net.layers().size();
    result_.inputs.resize(n);
    result_.outputs.resize(n);
    result_.needs.resize(n);
    result_.as_coded_bytes.resize(n);
    result_.output_gradients.resize(n);
    result_.input_gradients.resize(n);
  }

  LayerBuffers run() {
    const int n = static_cast<int>(net_.layers().size());
    for (int layer = 0; layer < n; ++layer) add_outputs(layer);
    gradient_of_.assign(result_.buffers.size(), -1);
    for (int layer = n - 1; layer >= 0; --layer) add_gradients(layer);
    for (int layer = n - 1; layer >= 0; --layer) add_needs(layer);
    return std::move(result_);
  }

 private:
  int add_buffer(std::int64_t bytes, int layer, bool is_output) {
    result_.buffers.push_back({bytes, layer, is_output, is_output ? layer : -1, {}});
    return static_cast<int>(result_.buffers.size()) - 1;
  }

  void add_outputs(int layer) {
    const Layer& it = net_.layers()[std::size_t(layer)];
    for (const int input : it.inputs) {
      if (input < 0) continue;
      const auto& outputs = result_.outputs[std::size_t(input)];
      const auto& successors = net_.successors(input);
      const auto port = std::find(successors.begin(), successors.end(), layer);
      const int buffer =
          outputs.size() == 1 ? outputs[0] : outputs[std::size_t(port - successors.begin())];
      result_.inputs[std::size_t(layer)].push_back(buffer);
      result_.buffers[std::size_t(buffer)].last_forward = layer;
    }
    const std::size_t copies =
        it.kind == LayerKind::kFork ? std::max<std::size_t>(1, net_.successors(layer).size()) : 1;
    for (std::size_t i = 0; i < copies; ++i)
      result_.outputs[std::size_t(layer)].push_back(
          add_buffer(net_.output_bytes(layer), layer, true));
  }

  void add_gradients(int layer) {
    const Layer& it = net_.layers()[std::size_t(layer)];
    auto& dy = result_.output_gradients[std::size_t(layer)];
    for (const int output : result_.outputs[std::size_t(layer)])
      if (gradient_of_[std::size_t(output)] >= 0) dy.push_back(gradient_of_[std::size_t(output)]);
    auto& dx = result_.input_gradients[std::size_t(layer)];
    switch (it.kind) {
      case LayerKind::kSoftmax:  // over its own output: the loss is taken there
        dx.push_back(result_.outputs[std::size_t(layer)][0]);
        break;
      case LayerKind::kActivation:
      case LayerKind::kLocalResponseNorm:
      case LayerKind::kFork:
        dx.push_back(dy.front());
        break;
      case LayerKind::kJoin:
        dx.push_back(dy.front());
        for (std::size_t i = 1; i < it.inputs.size(); ++i)
          dx.push_back(add_buffer(net_.output_bytes(layer), layer, false));
        break;
      default:
        dx.push_back(add_buffer(net_.input_bytes(layer), layer, false));
    }
    const auto& inputs = result_.inputs[std::size_t(layer)];
    for (std::size_t i = 0; i < inputs.size(); ++i)
      gradient_of_[std::size_t(inputs[i])] = dx[std::min(i, dx.size() - 1)];
  }

  void add_needs(int layer) {
    const Layer& it = net_.layers()[std::size_t(layer)];
    std::vector<int>& needs = result_.needs[std::size_t(layer)];
    const auto append = [&](const std::vector<int>& list) {
      needs.insert(needs.end(), list.begin(), list.end());
    };
    if (needs_input(it.kind)) append(result_.inputs[std::size_t(layer)]);
    if (needs_output(it.kind)) append(result_.outputs[std::size_t(layer)]);
    append(result_.output_gradients[std::size_t(layer)]);
    append(result_.input_gradients[std::size_t(layer)]);
    result_.as_coded_bytes[std::size_t(layer)] = result_.bytes_of(needs);
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    const int step = 2 * static_cast<int>(net_.layers().size()) - 1 - layer;
    for (const int buffer : needs)
      result_.buffers[std::size_t(buffer)].backward_steps.push_back(step);
  }

  const LayerNet& net_;
  LayerBuffers result_;
  std::vector<int> gradient_of_;  // by output buffer
};

}  // namespace

std::int64_t LayerBuffers::bytes_of(const std::vector<int>& list) const {
  std::int64_t sum = 0;
  for (const int buffer : list) sum += buffers[std::size_t(buffer)].bytes;
  return sum;
}

LayerBuffers derive_layer_buffers(const LayerNet& net) { return Derivation(net).run(); }

bool is_checkpoint(LayerKind kind) {
  return kind == LayerKind::kConvolution || kind == LayerKind::kFullyConnected ||
         kind == LayerKind::kJoin || kind == LayerKind::kFork;
}

}  // namespace plimsoll::plan
