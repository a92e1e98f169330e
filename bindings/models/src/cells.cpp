// SPDX-License-Identifier: Apache-2.0
// Networks of searched or random cells. Sources: Zoph et al., "Learning Transferable Architectures
// for Scalable Image Recognition" (NASNet-A), 2017; Liu, Simonyan, Yang, "DARTS", 2018 (the second
// order cell); Xie et al., "Exploring Randomly Wired Neural Networks", 2019.
#include <utility>

#include <torch/types.h>

#include "plimsoll/models/random_graph.h"

#include "builders.h"

namespace plimsoll::models {
namespace {

enum class CellOp : std::uint8_t { kSkip, kMax3, kAverage3, kSep3, kSep5, kSep7, kDil3 };

// An operation and the state it reads: 0 and 1 are the two cells before, 2.. the cell's own nodes.
struct CellEdge {
  CellOp op;
  std::int32_t from;
};

// Node i adds the edges 2i and 2i + 1; the cell joins the nodes listed in `joined`.
struct Genotype {
  std::vector<CellEdge> normal, reduce;
  std::vector<std::int32_t> normal_joined, reduce_joined;
};

const Genotype& darts_genotype() {
  using enum CellOp;
  static const Genotype kGenotype = {.normal = {{kSep3, 0},
                                                {kSep3, 1},
                                                {kSep3, 0},
                                                {kSep3, 1},
                                                {kSep3, 1},
                                                {kSkip, 0},
                                                {kSkip, 0},
                                                {kDil3, 2}},
                                     .reduce = {{kMax3, 0},
                                                {kMax3, 1},
                                                {kSkip, 2},
                                                {kMax3, 1},
                                                {kMax3, 0},
                                                {kSkip, 2},
                                                {kSkip, 2},
                                                {kMax3, 1}},
                                     .normal_joined = {2, 3, 4, 5},
                                     .reduce_joined = {2, 3, 4, 5}};
  return kGenotype;
}

const Genotype& nasnet_genotype() {
  using enum CellOp;
  static const Genotype kGenotype = {.normal = {{kSep5, 1},
                                                {kSep3, 0},
                                                {kSep5, 0},
                                                {kSep3, 0},
                                                {kAverage3, 1},
                                                {kSkip, 0},
                                                {kAverage3, 0},
                                                {kAverage3, 0},
                                                {kSep3, 1},
                                                {kSkip, 1}},
                                     .reduce = {{kSep5, 1},
                                                {kSep7, 0},
                                                {kMax3, 1},
                                                {kSep7, 0},
                                                {kAverage3, 1},
                                                {kSep5, 0},
                                                {kSkip, 3},
                                                {kAverage3, 2},
                                                {kSep3, 2},
                                                {kMax3, 1}},
                                     .normal_joined = {2, 3, 4, 5, 6},
                                     .reduce_joined = {4, 5, 6}};
  return kGenotype;
}

BlockPtr relu_conv_norm(std::int64_t in, std::int64_t out) {
  return chain({relu_out_of_place(), conv_norm(valid(in, out, 1), Activation::kNone)});
}

// Two depthwise-separable convolutions, the stride in the first.
BlockPtr separable(std::int64_t channels, std::int64_t kernel, std::int64_t stride) {
  return chain({relu_out_of_place(), conv(same(channels, channels, kernel, stride, channels)),
                conv_norm(valid(channels, channels, 1)),
                conv(same(channels, channels, kernel, 1, channels)),
                conv_norm(valid(channels, channels, 1), Activation::kNone)});
}

BlockPtr dilated(std::int64_t channels, std::int64_t stride) {
  ConvOptions depthwise = same(channels, channels, 3, stride, channels);
  depthwise.dilation = 2;
  depthwise.padding = {2, 2};
  return chain({relu_out_of_place(), conv(depthwise),
                conv_norm(valid(channels, channels, 1), Activation::kNone)});
}

// Halves the image: two 1x1 convolutions of stride 2, one shifted by a pixel.
class FactorizedReduce : public Block {
 public:
  FactorizedReduce(std::int64_t in, std::int64_t out)
      : even_(register_module("even", conv(valid(in, out / 2, 1, 2)))),
        odd_(register_module("odd", conv(valid(in, out - out / 2, 1, 2)))),
        norm_(register_module("norm", batch_norm(out))) {}
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor y = torch::relu(x);
    return norm_->forward(
        torch::cat({even_->forward(y), odd_->forward(y.slice(2, 1).slice(3, 1))}, 1));
  }

 private:
  BlockPtr even_, odd_, norm_;
};

BlockPtr cell_operation(CellOp op, std::int64_t channels, std::int64_t stride) {
  switch (op) {
    case CellOp::kSkip:
      if (stride == 1) return identity();
      return std::make_shared<FactorizedReduce>(channels, channels);
    case CellOp::kMax3:
      return max_pool(3, stride, 1);
    case CellOp::kAverage3:
      return average_pool(3, stride, 1);
    case CellOp::kSep3:
      return separable(channels, 3, stride);
    case CellOp::kSep5:
      return separable(channels, 5, stride);
    case CellOp::kSep7:
      return separable(channels, 7, stride);
    case CellOp::kDil3:
      return dilated(channels, stride);
  }
  return identity();
}

struct CellPlace {
  std::int64_t before_last = 0, last = 0, channels = 0;
  bool is_reduction = false, follows_reduction = false;
};

class Cell : public torch::nn::Module {
 public:
  Cell(const Genotype& genotype, const CellPlace& place)
      : edges_(place.is_reduction ? genotype.reduce : genotype.normal),
        joined_(place.is_reduction ? genotype.reduce_joined : genotype.normal_joined) {
    BlockPtr first = relu_conv_norm(place.before_last, place.channels);
    if (place.follows_reduction)
      first = std::make_shared<FactorizedReduce>(place.before_last, place.channels);
    first_ = register_module("first", first);
    second_ = register_module("second", relu_conv_norm(place.last, place.channels));
    for (const CellEdge& edge : edges_) {
      const std::int64_t stride = place.is_reduction && edge.from < 2 ? 2 : 1;
      operations_.push_back(register_module("edge" + std::to_string(operations_.size()),
                                            cell_operation(edge.op, place.channels, stride)));
    }
  }

  std::int64_t joined_count() const { return static_cast<std::int64_t>(joined_.size()); }

  torch::Tensor forward(const torch::Tensor& before_last, const torch::Tensor& last,
                        double drop_probability) {
    std::vector<torch::Tensor> states = {first_->forward(before_last), second_->forward(last)};
    for (std::size_t i = 0; i < edges_.size(); i += 2) {
      torch::Tensor left = apply(i, states, drop_probability);
      states.push_back(left + apply(i + 1, states, drop_probability));
    }
    std::vector<torch::Tensor> parts;
    parts.reserve(joined_.size());
    for (const std::int32_t state : joined_) parts.push_back(states[static_cast<size_t>(state)]);
    return torch::cat(parts, 1);
  }

 private:
  torch::Tensor apply(std::size_t edge, const std::vector<torch::Tensor>& states,
                      double drop_probability) {
    torch::Tensor y =
        operations_[edge]->forward(states[static_cast<std::size_t>(edges_[edge].from)]);
    // Skips are never dropped, as in the reference implementation.
    return edges_[edge].op == CellOp::kSkip ? y : drop_path(y, drop_probability, is_training());
  }

  std::vector<CellEdge> edges_;
  std::vector<std::int32_t> joined_;
  BlockPtr first_, second_;
  std::vector<BlockPtr> operations_;
};

class CellNet : public Model {
 public:
  CellNet(const InputShape& shape, const Genotype& genotype, std::int64_t layers,
          std::int64_t channels, double drop_probability)
      : Model(shape), drop_probability_(drop_probability) {
    std::int64_t last = 3 * channels;
    std::int64_t before_last = last;
    stem_ = register_module("stem", conv_norm(same(shape.channels, last, 3), Activation::kNone));
    bool follows_reduction = false;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const bool is_reduction = layers >= 3 && (layer == layers / 3 || layer == 2 * layers / 3);
      if (is_reduction) channels *= 2;
      cells_.push_back(register_module(
          "cell" + std::to_string(layer),
          std::make_shared<Cell>(
              genotype, CellPlace{before_last, last, channels, is_reduction, follows_reduction})));
      before_last = std::exchange(last, cells_.back()->joined_count() * channels);
      follows_reduction = is_reduction;
    }
    head_ = register_module("head", classifier_head(last, shape.classes, 0));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor last = stem_->forward(input);
    torch::Tensor before_last = last;
    for (const auto& cell : cells_)
      before_last = std::exchange(last, cell->forward(before_last, last, drop_probability_));
    return head_->forward(last);
  }

 private:
  double drop_probability_;
  BlockPtr stem_, head_;
  std::vector<std::shared_ptr<Cell>> cells_;
};

// ReLU, depthwise-separable 3x3 convolution, batch normalisation.
BlockPtr wired_unit(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return chain({relu_out_of_place(), conv(same(in, in, 3, stride, in)),
                conv_norm(valid(in, out, 1), Activation::kNone)});
}

// A random graph: every node adds its inputs with learnt weights (through a sigmoid), the nodes
// without predecessors read the stage's input at stride 2, the last ones are averaged.
class WiredStage : public Block {
 public:
  WiredStage(Wiring wiring, std::int64_t in, std::int64_t out) : wiring_(std::move(wiring)) {
    outputs_ = wiring_.outputs();
    for (std::size_t node = 0; node < wiring_.predecessors.size(); ++node) {
      const auto& from = wiring_.predecessors[node];
      const std::string suffix = std::to_string(node);
      units_.push_back(register_module(
          "node" + suffix, from.empty() ? wired_unit(in, out, 2) : wired_unit(out, out, 1)));
      weights_.emplace_back();
      if (from.size() > 1) {
        weights_.back() = register_parameter(
            "weight" + suffix, torch::zeros({static_cast<std::int64_t>(from.size())}));
      }
    }
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    std::vector<torch::Tensor> values(units_.size());
    for (std::size_t node = 0; node < units_.size(); ++node)
      values[node] = units_[node]->forward(gather(node, x, values));
    torch::Tensor sum = values[static_cast<std::size_t>(outputs_[0])];
    for (std::size_t i = 1; i < outputs_.size(); ++i)
      sum = sum + values[static_cast<std::size_t>(outputs_[i])];
    return sum / static_cast<double>(outputs_.size());
  }

 private:
  torch::Tensor gather(std::size_t node, const torch::Tensor& x,
                       const std::vector<torch::Tensor>& values) const {
    const auto& from = wiring_.predecessors[node];
    if (from.empty()) return x;
    if (from.size() == 1) return values[static_cast<std::size_t>(from[0])];
    const torch::Tensor weights = torch::sigmoid(weights_[node]);
    torch::Tensor sum = values[static_cast<std::size_t>(from[0])] * weights[0];
    for (std::size_t i = 1; i < from.size(); ++i)
      sum = sum + values[static_cast<std::size_t>(from[i])] * weights[static_cast<int64_t>(i)];
    return sum;
  }

  Wiring wiring_;
  std::vector<std::int32_t> outputs_;
  std::vector<BlockPtr> units_;
  std::vector<torch::Tensor> weights_;
};

WiringOptions wiring_options(const Settings& settings, std::int64_t stage) {
  WiringOptions options;
  const std::string& generator = settings.choice("generator");
  options.kind = generator == "ws"   ? WiringKind::kWattsStrogatz
                 : generator == "er" ? WiringKind::kErdosRenyi
                                     : WiringKind::kBarabasiAlbert;
  options.nodes = static_cast<std::int32_t>(settings.integer("nodes"));
  options.k = static_cast<std::int32_t>(settings.integer("k"));
  options.p = settings.real("p");
  options.seed = static_cast<std::uint64_t>(settings.integer("seed") * 1000 + stage);
  return options;
}

}  // namespace

std::shared_ptr<Model> build_cell_net(const Settings& settings) {
  const Genotype& genotype = settings.model() == "darts" ? darts_genotype() : nasnet_genotype();
  auto model =
      std::make_shared<CellNet>(image_shape(settings), genotype, settings.integer("layers"),
                                settings.integer("channels"), settings.real("dropout"));
  initialize_convolutions(*model);
  return model;
}

std::shared_ptr<Model> build_randwire(const Settings& settings) {
  auto model = std::make_shared<ChainModel>(image_shape(settings));
  std::int64_t width = settings.integer("channels");
  std::int64_t in = std::max<std::int64_t>(1, width / 2);
  Chain& body = model->body();
  const bool is_large = settings.integer("image") > 64;
  body.add(conv_norm(same(settings.integer("image-channels"), in, 3, is_large ? 2 : 1)));
  if (is_large) {
    body.add(conv_norm(same(in, width, 3, 2), Activation::kNone));
    in = width;
  }
  for (std::int64_t stage = 0; stage < settings.integer("stages"); ++stage, width *= 2) {
    body.add(std::make_shared<WiredStage>(draw_wiring(wiring_options(settings, stage)), in, width));
    in = width;
  }
  const std::int64_t head = settings.integer("head");
  body.add(chain({relu(), conv_norm(valid(in, head, 1))}));
  body.add(classifier_head(head, settings.integer("classes"), settings.real("dropout")));
  initialize_convolutions(*model);
  return model;
}

}  // namespace plimsoll::models
