// SPDX-License-Identifier: Apache-2.0
// The list of models. Published parameter counts: torchvision's documentation (ResNet, VGG,
// AlexNet, DenseNet, MobileNet), the pretrained-models collection (Inception-v4), the DARTS
// repository's log (3.349342 million for its second order cell at 20 layers and 36 channels), the
// GPT-2 formula.
#include <utility>

#include "plimsoll/models/spec.h"

namespace plimsoll::models {
namespace {

using Kind = KeyInfo::Kind;

KeyInfo integer(std::string name, std::int64_t value, double minimum, double maximum,
                std::string meaning) {
  return {std::move(name),   Kind::kInteger, std::to_string(value), minimum, maximum, {},
          std::move(meaning)};
}

KeyInfo real(std::string name, std::string value, double minimum, double maximum,
             std::string meaning) {
  return {std::move(name), Kind::kReal, std::move(value), minimum, maximum, {}, std::move(meaning)};
}

KeyInfo list(std::string name, std::string value, double minimum, double maximum,
             std::string meaning) {
  return {std::move(name), Kind::kList, std::move(value), minimum, maximum, {}, std::move(meaning)};
}

KeyInfo choice(std::string name, std::vector<std::string> choices, std::string meaning) {
  const std::string first = choices.front();
  return {std::move(name), Kind::kChoice, first, 0, 0, std::move(choices), std::move(meaning)};
}

struct SharedDefaults {
  std::int64_t image = 224;
  std::int64_t least_image = 32;
  std::int64_t channels = 64;
  std::int64_t classes = 1000;
  std::string dropout = "0";
  std::string dropout_meaning = "dropout before the last layer";
  std::int64_t image_channels = 3;
};

KeyInfo seed_key() {
  return integer("seed", 1, 0, 1e15, "seed of the weights (train's --seed where absent)");
}

KeyInfo dropout_key(const SharedDefaults& defaults) {
  return real("dropout", defaults.dropout, 0, 0.99, defaults.dropout_meaning);
}

// What every image classifier understands.
std::vector<KeyInfo> image_keys(const SharedDefaults& defaults, std::vector<KeyInfo> own = {}) {
  own.push_back(integer("image", defaults.image, static_cast<double>(defaults.least_image), 4096,
                        "height and width in pixels"));
  own.push_back(integer("classes", defaults.classes, 2, 100000, "classes to tell apart"));
  own.push_back(dropout_key(defaults));
  own.push_back(integer("image-channels", defaults.image_channels, 1, 64, "channels of the image"));
  own.push_back(seed_key());
  return own;
}

std::vector<KeyInfo> conv_keys(const SharedDefaults& defaults, std::vector<KeyInfo> own = {}) {
  own.push_back(integer("channels", defaults.channels, 1, 4096, "width of the first stage"));
  return image_keys(defaults, std::move(own));
}

ModelInfo resnet(const std::string& depth, std::int64_t parameters) {
  ModelInfo info;
  info.name = "resnet" + depth;
  info.summary = "residual network, " + depth + " layers";
  info.source = "He et al. 2015, arXiv 1512.03385";
  info.keys = conv_keys({.least_image = 8},
                        {choice("stem", {"large", "small", "auto"},
                                "large: 7x7 at stride 2 and a pool; small: 3x3; auto: small up to "
                                "64 pixels")});
  info.small = info.name + ":channels=8,image=32,classes=10,dropout=0.1";
  info.published_parameters = parameters;
  return info;
}

ModelInfo resnet_family() {
  ModelInfo info;
  info.name = "resnet";
  info.summary = "residual network of bottlenecks, 3 * sum(stages) + 2 layers";
  info.source = "He et al. 2015, arXiv 1512.03385";
  info.keys = conv_keys({.image = 32, .least_image = 8, .channels = 16, .classes = 10},
                        {list("stages", "3-4-6-3", 1, 20000, "blocks of each stage"),
                         choice("stem", {"auto", "large", "small"},
                                "large: 7x7 at stride 2 and a pool; small: 3x3; auto: small up to "
                                "64 pixels")});
  info.small = "resnet:stages=1-2-1,channels=8,image=16,dropout=0.1";
  return info;
}

ModelInfo preact_resnet() {
  ModelInfo info;
  info.name = "preact-resnet";
  info.summary = "pre-activation CIFAR residual network, 9 * n + 2 layers";
  info.source = "He et al. 2016, arXiv 1603.05027";
  info.keys = conv_keys({.image = 32, .least_image = 8, .channels = 16, .classes = 10},
                        {integer("depth", 164, 11, 100001, "layers, 9 * n + 2")});
  info.small = "preact-resnet:depth=20,channels=8,image=16,dropout=0.1";
  return info;
}

ModelInfo vgg(const std::string& depth, std::int64_t parameters) {
  ModelInfo info;
  info.name = "vgg" + depth;
  info.summary = "plain 3x3 convolutions, " + depth + " layers";
  info.source = "Simonyan, Zisserman 2014, arXiv 1409.1556";
  info.keys = conv_keys({.dropout = "0.5", .dropout_meaning = "dropout in the head"},
                        {integer("hidden", 4096, 1, 65536, "width of the head")});
  info.small = info.name + ":channels=8,image=32,hidden=32,classes=10";
  info.published_parameters = parameters;
  return info;
}

ModelInfo alexnet() {
  ModelInfo info;
  info.name = "alexnet";
  info.summary = "five convolutions and three linear layers";
  info.source = "Krizhevsky 2014, arXiv 1404.5997";
  info.keys =
      conv_keys({.least_image = 63, .dropout = "0.5", .dropout_meaning = "dropout in the head"},
                {integer("hidden", 4096, 1, 65536, "width of the head")});
  info.small = "alexnet:channels=8,image=64,hidden=32,classes=10";
  info.published_parameters = 61100840;
  return info;
}

ModelInfo inception() {
  ModelInfo info;
  info.name = "inception-v4";
  info.summary = "branching convolutions, joined by concatenation";
  info.source = "Szegedy et al. 2016, arXiv 1602.07261";
  info.keys = conv_keys({.image = 299, .least_image = 75, .channels = 32, .dropout = "0.2"},
                        {list("blocks", "4-7-3", 0, 1000, "blocks A, B and C")});
  info.small = "inception-v4:channels=4,image=75,blocks=1-1-1,classes=10";
  info.published_parameters = 42679816;
  return info;
}

ModelInfo densenet() {
  ModelInfo info;
  info.name = "densenet121";
  info.summary = "every layer reads all before it in its block";
  info.source = "Huang et al. 2016, arXiv 1608.06993";
  info.keys = conv_keys({.dropout_meaning = "dropout after every 3x3 convolution"},
                        {integer("growth", 32, 1, 1024, "channels every layer adds"),
                         list("blocks", "6-12-24-16", 1, 1000, "layers of each block")});
  info.small = "densenet121:channels=8,growth=4,blocks=2-3-2-2,image=32,classes=10,dropout=0.1";
  info.published_parameters = 7978856;
  return info;
}

ModelInfo mobilenet() {
  ModelInfo info;
  info.name = "mobilenet-v2";
  info.summary = "inverted residuals of depthwise convolutions";
  info.source = "Sandler et al. 2018, arXiv 1801.04381";
  info.keys = conv_keys({.channels = 32, .dropout = "0.2"});
  info.small = "mobilenet-v2:channels=8,image=32,classes=10";
  info.published_parameters = 3504872;
  return info;
}

ModelInfo randwire() {
  ModelInfo info;
  info.name = "randwire";
  info.summary = "stages wired by random graphs";
  info.source = "Xie et al. 2019, arXiv 1904.01569";
  info.keys = conv_keys(
      {.image = 32, .least_image = 16, .channels = 32, .classes = 10, .dropout = "0.2"},
      {integer("nodes", 32, 2, 10000, "nodes of each stage's graph"),
       integer("k", 4, 1, 1000, "neighbours (ws, even) or new links (ba)"),
       real("p", "0.75", 0, 1, "chance of rewiring (ws) or of an edge (er)"),
       integer("stages", 3, 1, 6, "stages, each halves the image and doubles the width"),
       integer("head", 1280, 1, 65536, "width of the last convolution"),
       choice("generator", {"ws", "er", "ba"}, "Watts-Strogatz, Erdős-Rényi or Barabási-Albert")});
  info.small = "randwire:nodes=8,channels=8,stages=2,head=32,image=16";
  for (KeyInfo& key : info.keys)
    if (key.name == "seed") key.meaning = "seed of the graphs, and of the weights as elsewhere";
  return info;
}

ModelInfo cell_net(const std::string& name, const std::string& source, std::int64_t layers,
                   std::int64_t channels) {
  ModelInfo info;
  info.name = name;
  info.summary = "searched cells, reduced at one and two thirds";
  info.source = source;
  info.keys = conv_keys({.image = 32,
                         .least_image = 8,
                         .channels = channels,
                         .classes = 10,
                         .dropout = "0.2",
                         .dropout_meaning = "chance to drop a path of a cell"},
                        {integer("layers", layers, 1, 200, "cells")});
  info.small = name + ":layers=3,channels=4,image=16";
  return info;
}

ModelInfo unet() {
  ModelInfo info;
  info.name = "unet";
  info.summary = "classes every pixel; skips from the way down to the way up";
  info.source = "Ronneberger et al. 2015, arXiv 1505.04597";
  info.keys = image_keys({.image = 128,
                          .least_image = 8,
                          .classes = 11,
                          .dropout = "0.5",
                          .dropout_meaning = "dropout at the bottom"},
                         {integer("base", 32, 1, 1024, "channels of the first level"),
                          integer("levels", 4, 1, 8, "times the image is halved")});
  info.small = "unet:base=4,levels=2,image=16";
  return info;
}

ModelInfo vit() {
  ModelInfo info;
  info.name = "vit";
  info.summary = "vision transformer";
  info.source = "Dosovitskiy et al. 2020, arXiv 2010.11929";
  info.keys = image_keys({.image = 32,
                          .least_image = 4,
                          .classes = 10,
                          .dropout = "0.1",
                          .dropout_meaning = "dropout in every layer"},
                         {integer("layers", 6, 1, 1000, "encoder layers"),
                          integer("dim", 192, 1, 16384, "features of a token"),
                          integer("heads", 3, 1, 1024, "attention heads, a divisor of dim"),
                          integer("patch", 4, 1, 256, "pixels of a patch, a divisor of image")});
  info.small = "vit:layers=2,dim=24,heads=3,patch=4,image=16";
  return info;
}

std::vector<KeyInfo> token_keys(std::int64_t seq, std::int64_t classes, std::string dropout,
                                std::vector<KeyInfo> own) {
  own.push_back(integer("seq", seq, 1, 65536, "tokens of a sample"));
  own.push_back(integer("classes", classes, 2, 1000000, "size of the vocabulary"));
  own.push_back(
      dropout_key({.dropout = std::move(dropout), .dropout_meaning = "dropout in every layer"}));
  own.push_back(seed_key());
  return own;
}

ModelInfo gpt() {
  ModelInfo info;
  info.name = "gpt";
  info.summary = "causal transformer with a tied head (GPT-2's layout)";
  info.source = "Radford et al. 2019";
  info.keys = token_keys(256, 8192, "0.1",
                         {integer("layers", 6, 1, 1000, "decoder layers"),
                          integer("dim", 256, 1, 16384, "features of a token"),
                          integer("heads", 8, 1, 1024, "attention heads, a divisor of dim")});
  info.small = "gpt:layers=2,dim=32,heads=4,seq=16,classes=64";
  return info;
}

ModelInfo lstm() {
  ModelInfo info;
  info.name = "lstm";
  info.summary = "recurrent language model";
  info.source = "Zaremba et al. 2014, arXiv 1409.2329";
  info.keys = token_keys(64, 4096, "0.5",
                         {integer("layers", 2, 1, 64, "recurrent layers"),
                          integer("dim", 256, 1, 16384, "hidden features")});
  info.small = "lstm:layers=2,dim=16,seq=8,classes=32";
  return info;
}

ModelInfo mlp() {
  ModelInfo info;
  info.name = "mlp";
  info.summary = "linear layers with ReLU";
  info.source = "folklore";
  info.keys = image_keys({.image = 28,
                          .least_image = 1,
                          .classes = 10,
                          .dropout = "0.2",
                          .dropout_meaning = "dropout after every hidden layer",
                          .image_channels = 1},
                         {integer("layers", 2, 0, 10000, "hidden layers"),
                          integer("dim", 512, 1, 65536, "width of a hidden layer")});
  info.small = "mlp:layers=2,dim=32,image=8";
  return info;
}

std::vector<ModelInfo> make_list() {
  ModelInfo darts = cell_net("darts", "Liu et al. 2018, arXiv 1806.09055", 20, 36);
  darts.published_parameters = 3349342;
  return {resnet("18", 11689512),
          resnet("34", 21797672),
          resnet("50", 25557032),
          resnet("101", 44549160),
          resnet("152", 60192808),
          resnet_family(),
          preact_resnet(),
          vgg("11", 132863336),
          vgg("16", 138357544),
          alexnet(),
          inception(),
          densenet(),
          mobilenet(),
          randwire(),
          std::move(darts),
          cell_net("nasnet", "Zoph et al. 2017, arXiv 1707.07012", 20, 33),
          unet(),
          vit(),
          gpt(),
          lstm(),
          mlp()};
}

}  // namespace

const std::vector<ModelInfo>& model_list() {
  static const std::vector<ModelInfo> kList = make_list();
  return kList;
}

}  // namespace plimsoll::models
