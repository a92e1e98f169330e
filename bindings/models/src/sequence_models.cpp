// SPDX-License-Identifier: Apache-2.0
// Attention, recurrence and plain layers. Sources: Dosovitskiy et al., "An Image is Worth 16x16
// Words" (ViT), 2020; Radford et al., "Language Models are Unsupervised Multitask Learners"
// (GPT-2), 2019; Zaremba, Sutskever, Vinyals, "Recurrent Neural Network Regularization" (LSTM),
// 2014.
#include <cmath>
#include <utility>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include "builders.h"

namespace plimsoll::models {
namespace {

namespace nn = torch::nn;

BlockPtr feed_forward(std::int64_t dim, double dropout_probability) {
  return chain({linear(dim, 4 * dim), gelu(), linear(4 * dim, dim), dropout(dropout_probability)});
}

void check_heads(const Settings& settings) {
  if (settings.integer("dim") % settings.integer("heads") != 0) {
    refuse_settings(settings, "dim = " + std::to_string(settings.integer("dim")) +
                                  " must be a multiple of heads = " +
                                  std::to_string(settings.integer("heads")));
  }
}

// A pre-norm encoder layer around LibTorch's own multi-head attention ([tokens, batch, dim]).
class VitLayer : public Block {
 public:
  VitLayer(std::int64_t dim, std::int64_t heads, double dropout_probability)
      : attention_(register_module(
            "attention",
            nn::MultiheadAttention(
                nn::MultiheadAttentionOptions(dim, heads).dropout(dropout_probability)))),
        attention_norm_(register_module("attention_norm", layer_norm(dim))),
        dropout_(register_module("dropout", dropout(dropout_probability))),
        mlp_norm_(register_module("mlp_norm", layer_norm(dim))),
        mlp_(register_module("mlp", feed_forward(dim, dropout_probability))) {}
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor y = attention_norm_->forward(x);
    const torch::Tensor attended =
        std::get<0>(attention_->forward(y, y, y, /*key_padding_mask=*/{}, /*need_weights=*/false));
    const torch::Tensor sum = x + dropout_->forward(attended);
    return sum + mlp_->forward(mlp_norm_->forward(sum));
  }

 private:
  nn::MultiheadAttention attention_;
  BlockPtr attention_norm_, dropout_, mlp_norm_, mlp_;
};

class Vit : public Model {
 public:
  Vit(const InputShape& shape, const Settings& settings)
      : Model(shape), dim_(settings.integer("dim")) {
    const std::int64_t patch = settings.integer("patch");
    const double probability = settings.real("dropout");
    const std::int64_t side = shape.image / patch;
    ConvOptions embed = valid(shape.channels, dim_, patch, patch);
    embed.bias = true;
    patches_ = register_module("patches", conv(embed));
    class_token_ = register_parameter("class_token", torch::zeros({1, 1, dim_}));
    positions_ = register_parameter("positions", torch::randn({side * side + 1, 1, dim_}) * 0.02);
    dropout_ = register_module("dropout", dropout(probability));
    for (std::int64_t layer = 0; layer < settings.integer("layers"); ++layer)
      layers_->add(std::make_shared<VitLayer>(dim_, settings.integer("heads"), probability));
    register_module("layers", layers_);
    norm_ = register_module("norm", layer_norm(dim_));
    head_ = register_module("head", linear(dim_, shape.classes));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const std::int64_t batch = input.size(0);
    torch::Tensor x = patches_->forward(input).flatten(2).permute({2, 0, 1});
    x = torch::cat({class_token_.expand({1, batch, dim_}), x}, 0) + positions_;
    x = layers_->forward(dropout_->forward(x));
    return head_->forward(norm_->forward(x.select(0, 0)));
  }

 private:
  std::int64_t dim_;
  BlockPtr patches_, dropout_, norm_, head_;
  std::shared_ptr<Chain> layers_ = std::make_shared<Chain>();
  torch::Tensor class_token_, positions_;
};

// A pre-norm decoder layer with causal scaled dot-product attention.
class GptLayer : public Block {
 public:
  GptLayer(std::int64_t dim, std::int64_t heads, double dropout_probability)
      : heads_(heads), dropout_probability_(dropout_probability) {
    attention_norm_ = register_module("attention_norm", layer_norm(dim));
    qkv_ = register_module("qkv", linear(dim, 3 * dim));
    projection_ =
        register_module("projection", chain({linear(dim, dim), dropout(dropout_probability)}));
    mlp_norm_ = register_module("mlp_norm", layer_norm(dim));
    mlp_ = register_module("mlp", feed_forward(dim, dropout_probability));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor sum = x + projection_->forward(attend(attention_norm_->forward(x)));
    return sum + mlp_->forward(mlp_norm_->forward(sum));
  }

 private:
  torch::Tensor attend(const torch::Tensor& x) {
    const std::int64_t batch = x.size(0);
    const std::int64_t length = x.size(1);
    const auto parts = qkv_->forward(x).chunk(3, 2);
    const auto split = [&](const torch::Tensor& part) {
      return part.view({batch, length, heads_, -1}).transpose(1, 2);
    };
    const torch::Tensor attended = torch::scaled_dot_product_attention(
        split(parts[0]), split(parts[1]), split(parts[2]), /*attn_mask=*/{},
        is_training() ? dropout_probability_ : 0.0, /*is_causal=*/true);
    return attended.transpose(1, 2).reshape({batch, length, -1});
  }

  std::int64_t heads_;
  double dropout_probability_;
  BlockPtr attention_norm_, qkv_, projection_, mlp_norm_, mlp_;
};

class Gpt : public Model {
 public:
  Gpt(const InputShape& shape, const Settings& settings) : Model(shape) {
    const std::int64_t dim = settings.integer("dim");
    const double probability = settings.real("dropout");
    tokens_ = register_module("tokens", nn::Embedding(shape.classes, dim));
    positions_ = register_module("positions", nn::Embedding(shape.sequence, dim));
    dropout_ = register_module("dropout", dropout(probability));
    for (std::int64_t layer = 0; layer < settings.integer("layers"); ++layer)
      layers_->add(std::make_shared<GptLayer>(dim, settings.integer("heads"), probability));
    register_module("layers", layers_);
    norm_ = register_module("norm", layer_norm(dim));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const torch::Tensor places = torch::arange(input.size(1), input.options());
    torch::Tensor x = tokens_->forward(input) + positions_->forward(places);
    x = norm_->forward(layers_->forward(dropout_->forward(x)));
    // The head is tied to the embedding.
    return torch::linear(x, tokens_->weight);
  }

 private:
  nn::Embedding tokens_ = nullptr, positions_ = nullptr;
  BlockPtr dropout_, norm_;
  std::shared_ptr<Chain> layers_ = std::make_shared<Chain>();
};

class LstmModel : public Model {
 public:
  LstmModel(const InputShape& shape, const Settings& settings) : Model(shape) {
    const std::int64_t dim = settings.integer("dim");
    const double probability = settings.real("dropout");
    tokens_ = register_module("tokens", nn::Embedding(shape.classes, dim));
    input_dropout_ = register_module("input_dropout", dropout(probability));
    // It drops between layers only, and LibTorch warns where there is no between.
    const double between = settings.integer("layers") > 1 ? probability : 0;
    lstm_ = register_module("lstm", nn::LSTM(nn::LSTMOptions(dim, dim)
                                                 .num_layers(settings.integer("layers"))
                                                 .dropout(between)
                                                 .batch_first(true)));
    output_dropout_ = register_module("output_dropout", dropout(probability));
    head_ = register_module("head", linear(dim, shape.classes));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const torch::Tensor x = input_dropout_->forward(tokens_->forward(input));
    const torch::Tensor y = std::get<0>(lstm_->forward(x));
    return head_->forward(output_dropout_->forward(y));
  }

 private:
  nn::Embedding tokens_ = nullptr;
  nn::LSTM lstm_ = nullptr;
  BlockPtr input_dropout_, output_dropout_, head_;
};

InputShape token_shape(const Settings& settings) {
  InputShape shape;
  shape.input = InputKind::kTokens;
  shape.target = TargetKind::kToken;
  shape.sequence = settings.integer("seq");
  shape.classes = settings.integer("classes");
  return shape;
}

}  // namespace

std::shared_ptr<Model> build_vit(const Settings& settings) {
  check_heads(settings);
  const InputShape shape = image_shape(settings);
  if (shape.image % settings.integer("patch") != 0) {
    refuse_settings(settings, "image = " + std::to_string(shape.image) +
                                  " must be a multiple of patch = " +
                                  std::to_string(settings.integer("patch")));
  }
  auto model = std::make_shared<Vit>(shape, settings);
  initialize_transformer(*model, 0.02);
  return model;
}

std::shared_ptr<Model> build_gpt(const Settings& settings) {
  check_heads(settings);
  auto model = std::make_shared<Gpt>(token_shape(settings), settings);
  initialize_transformer(*model, 0.02);
  return model;
}

std::shared_ptr<Model> build_lstm(const Settings& settings) {
  return std::make_shared<LstmModel>(token_shape(settings), settings);
}

std::shared_ptr<Model> build_mlp(const Settings& settings) {
  const InputShape shape = image_shape(settings);
  auto model = std::make_shared<ChainModel>(shape);
  std::int64_t in = shape.channels * shape.image * shape.image;
  const std::int64_t dim = settings.integer("dim");
  model->body().add(flatten());
  for (std::int64_t layer = 0; layer < settings.integer("layers"); ++layer, in = dim) {
    model->body().add(linear(in, dim));
    model->body().add(relu());
    model->body().add(dropout(settings.real("dropout")));
  }
  model->body().add(linear(in, shape.classes));
  return model;
}

}  // namespace plimsoll::models
