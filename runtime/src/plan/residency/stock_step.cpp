// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "plimsoll/graph/builder.h"

#include "step_makers.h"

namespace plimsoll::plan {

using graph::GraphBuilder;
using graph::OpSpec;
using graph::Phase;
using graph::ValueId;
using graph::ValueKind;

namespace {

class StockStep {
 public:
  StockStep(const LayerNet& net, const StepGraphOptions& options)
      : net_(net),
        options_(options),
        output_(net.layers().size()),
        extra_(net.layers().size()),
        weight_(net.layers().size()),
        momentum_(net.layers().size()),
        gradient_(net.layers().size()) {}

  graph::Graph make() {
    const int layers = static_cast<int>(net_.layers().size());
    if (options_.parameters) add_persistent();
    for (int layer = 0; layer < layers; ++layer) forward(layer);
    for (int layer = layers - 1; layer >= 0; --layer) backward(layer);
    for (const Update& update : updates_) add_update(update);
    return builder_.build();
  }

 private:
  struct Update {
    int layer;
    ValueId gradient;
  };
  const Layer& layer_of(int layer) const { return net_.layers()[std::size_t(layer)]; }

  void add_persistent() {
    const std::int64_t batch_bytes = net_.batch() * net_.image().elements() * 4;
    batch_ = builder_.add_tensor(batch_bytes, ValueKind::kInput, false, "batch");
    for (std::size_t i = 0; i < net_.layers().size(); ++i) {
      const std::int64_t bytes = net_.parameter_bytes(static_cast<int>(i));
      if (bytes == 0) continue;
      weight_[i] = builder_.add_tensor(bytes, ValueKind::kParameter, true,
                                       net_.layers()[i].name + ".weight");
      momentum_[i] = builder_.add_tensor(bytes, ValueKind::kOptimizerState, true,
                                         net_.layers()[i].name + ".momentum");
    }
  }

  // The value that stands for a layer's output; FORK passes its input on.
  ValueId input_of(int layer, std::size_t i = 0) const {
    const int input = layer_of(layer).inputs[i];
    return input < 0 ? batch_ : output_[std::size_t(input)];
  }

  OpSpec spec_for(int layer, bool forward, double flops) {
    const Layer& it = layer_of(layer);
    kind_ = std::string(layer_kind_name(it.kind)) + (forward ? "" : "_backward");
    name_ = it.name + (forward ? "" : " backward");
    OpSpec spec;
    spec.kind = kind_;
    spec.name = name_;
    spec.phase = forward ? Phase::kForward : Phase::kBackward;
    if (forward) spec.flags = graph::kRecomputable;
    spec.attributes = {{"flops", {std::llround(flops)}}};
    if (options_.workspaces && it.kind == LayerKind::kConvolution && it.kernel > 1) {
      const std::int64_t matrix =
          net_.output_bytes(layer) / it.out.channels * it.in.channels * it.kernel * it.kernel;
      spec.attributes.push_back({"workspace_choices", {0, 1300, matrix / 8, 1100, matrix, 1000}});
    }
    return spec;
  }
  static void read(OpSpec& spec, ValueId v) {
    if (v.valid()) spec.operands.push_back(v);
  }

  void forward(int layer) {
    const Layer& it = layer_of(layer);
    const auto at = static_cast<std::size_t>(layer);
    if (it.kind == LayerKind::kFork) {
      output_[at] = input_of(layer);
      return;
    }
    OpSpec spec = spec_for(layer, true, net_.forward_flops(layer));
    read(spec, input_of(layer));
    const std::int64_t bytes = net_.output_bytes(layer);
    switch (it.kind) {
      case LayerKind::kActivation:
      case LayerKind::kJoin: {  // in place: over the input, or the first summand
        if (it.kind == LayerKind::kJoin) read(spec, input_of(layer, 1));
        const ValueId old = input_of(layer);
        output_[at] = builder_.add_value({.storage = builder_.storage(old), .overwrites = old});
        spec.results = {output_[at]};
        break;
      }
      default:
        read(spec, weight_[at]);
        output_[at] = builder_.add_tensor(bytes);
        spec.results = {output_[at]};
        if (const std::int64_t more = extra_bytes(layer); more > 0) {
          extra_[at] = builder_.add_value({.storage = builder_.add_storage({.size_bytes = more}),
                                           .data_type = it.kind == LayerKind::kDropout
                                                            ? graph::DataType::kBool
                                                            : graph::DataType::kUnknown});
          spec.results.push_back(extra_[at]);
        }
        if (it.kind == LayerKind::kDropout) spec.flags |= graph::kRandom;
    }
    builder_.add_op(spec);
  }
  // Batch statistics, indices of the maxima, dropout's mask.
  std::int64_t extra_bytes(int layer) const {
    const Layer& it = layer_of(layer);
    const std::int64_t bytes = net_.output_bytes(layer);
    if (it.kind == LayerKind::kBatchNorm) return 2 * it.out.channels * 4;
    if (it.kind == LayerKind::kPool && !is_average(it)) return 2 * bytes;
    if (it.kind == LayerKind::kDropout) return bytes / 4;
    return 0;
  }
  static bool is_average(const Layer& it) { return it.kernel == it.in.height; }

  void backward(int layer) {
    const Layer& it = layer_of(layer);
    const auto at = static_cast<std::size_t>(layer);
    const ValueId dy = gradient_[at];
    if (it.kind == LayerKind::kFork) {
      hand_on(it.inputs[0], dy);
      return;
    }
    if (it.kind == LayerKind::kJoin) {
      shared_.push_back(dy);
      hand_on(it.inputs[0], dy);
      hand_on(it.inputs[1], dy);
      return;
    }
    OpSpec spec = spec_for(layer, false, net_.forward_flops(layer) * backward_factor(it.kind));
    read(spec, dy);
    read_saved(layer, spec);
    ValueId dx;
    if (it.inputs[0] >= 0) {
      dx = builder_.add_tensor(net_.input_bytes(layer), ValueKind::kGradient);
      spec.results.push_back(dx);
    }
    if (weight_[at].valid()) {
      const ValueId dw = builder_.add_tensor(net_.parameter_bytes(layer), ValueKind::kGradient,
                                             options_.keep_gradients);
      spec.results.push_back(dw);
      updates_.push_back({layer, dw});
    }
    if (spec.results.empty()) return;
    builder_.add_op(spec);
    if (dx.valid()) hand_on(it.inputs[0], dx);
  }
  void read_saved(int layer, OpSpec& spec) {
    const auto at = static_cast<std::size_t>(layer);
    switch (layer_of(layer).kind) {
      case LayerKind::kConvolution:
      case LayerKind::kFullyConnected:
        read(spec, input_of(layer));
        read(spec, weight_[at]);
        break;
      case LayerKind::kBatchNorm:
        read(spec, input_of(layer));
        read(spec, weight_[at]);
        read(spec, extra_[at]);
        break;
      case LayerKind::kActivation:
      case LayerKind::kSoftmax:
        read(spec, output_[at]);
        break;
      case LayerKind::kLocalResponseNorm:
        read(spec, input_of(layer));
        read(spec, output_[at]);
        break;
      case LayerKind::kPool:
        if (extra_[at].valid()) {
          read(spec, input_of(layer));
          read(spec, extra_[at]);
        }
        break;
      default:
        read(spec, extra_[at]);
    }
  }

  // Gives a gradient to the layer whose output it belongs to; a second one is added in place,
  // unless another branch still reads the first.
  void hand_on(int layer, ValueId gradient) {
    if (layer < 0) return;
    ValueId& held = gradient_[std::size_t(layer)];
    if (!held.valid()) {
      held = gradient;
      return;
    }
    kind_ = "ADD_backward";
    name_ = layer_of(layer).name + " gradients' sum";
    OpSpec spec;
    spec.kind = kind_;
    spec.name = name_;
    spec.phase = Phase::kBackward;
    ValueId first = held;
    ValueId second = gradient;
    if (is_shared(first)) std::swap(first, second);
    spec.operands = {first, second};
    const ValueId sum = builder_.add_value(
        {.storage = builder_.storage(first), .kind = ValueKind::kGradient, .overwrites = first});
    spec.results = {sum};
    spec.attributes = {{"flops", {builder_.size_bytes(first) / 4}}};
    builder_.add_op(spec);
    held = sum;
  }
  bool is_shared(ValueId v) const {
    for (const ValueId other : shared_)
      if (other == v) return true;
    return false;
  }

  void add_update(const Update& update) {
    const auto at = static_cast<std::size_t>(update.layer);
    name_ = layer_of(update.layer).name + " update";
    OpSpec spec;
    spec.kind = "sgd_momentum";
    spec.name = name_;
    spec.phase = Phase::kOptimizer;
    spec.operands = {update.gradient, momentum_[at], weight_[at]};
    for (const auto& [old, kind] : {std::pair{momentum_[at], ValueKind::kOptimizerState},
                                    std::pair{weight_[at], ValueKind::kParameter}})
      spec.results.push_back(
          builder_.add_value({.storage = builder_.storage(old), .kind = kind, .overwrites = old}));
    spec.attributes = {{"flops", {net_.parameter_bytes(update.layer)}}};
    builder_.add_op(spec);
  }

  const LayerNet& net_;
  const StepGraphOptions& options_;
  GraphBuilder builder_;
  ValueId batch_;
  std::vector<ValueId> output_, extra_, weight_, momentum_;
  std::vector<ValueId> gradient_;  // of each layer's output
  std::vector<ValueId> shared_;    // gradients that two branches read
  std::vector<Update> updates_;
  std::string kind_, name_;  // what the spec under way points to
};

}  // namespace

graph::Graph make_stock_step(const LayerNet& net, const StepGraphOptions& options) {
  return StockStep(net, options).make();
}

graph::Graph make_step_graph(const LayerNet& net, const StepGraphOptions& options) {
  return options.model == StepModel::kPaper ? make_paper_step(net) : make_stock_step(net, options);
}

}  // namespace plimsoll::plan
