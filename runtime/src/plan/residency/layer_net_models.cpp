// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <map>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/plan/layer_net.h"

namespace plimsoll::plan {
namespace {

using Keys = std::map<std::string, std::string, std::less<>>;

constexpr std::int64_t kMaxSide = 65536;
constexpr std::int64_t kMaxBlocks = 1000000;

std::int64_t parse_count(std::string_view text, std::string_view key, std::int64_t limit) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > limit)
    throw InvalidArgument(
        fmt::format("{}={} in a model's name: expected a number from 1 to {}", key, text, limit));
  return value;
}

std::vector<std::int64_t> parse_stages(std::string_view text) {
  std::vector<std::int64_t> stages;
  while (true) {
    const std::size_t dash = text.find('-');
    stages.push_back(parse_count(text.substr(0, dash), "stages", kMaxBlocks));
    if (dash == std::string_view::npos) break;
    text.remove_prefix(dash + 1);
  }
  if (stages.size() > 8) throw InvalidArgument("stages in a model's name: at most 8 of them");
  return stages;
}

Keys parse_keys(std::string_view text, std::string_view description) {
  Keys keys;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t equal = item.find('=');
    if (equal == std::string_view::npos || equal == 0)
      throw InvalidArgument(
          fmt::format("'{}' in '{}' is not of the form key=value", item, description));
    const std::string_view key = item.substr(0, equal);
    if (key != "image" && key != "classes" && key != "stages")
      throw InvalidArgument(
          fmt::format("'{}' in '{}': layer nets know the keys image, classes, and (resnet) stages",
                      key, description));
    keys.emplace(key, item.substr(equal + 1));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return keys;
}

void add_classifier(LayerNet& net, int x, std::int64_t classes) {
  for (int i = 0; i < 2; ++i) {
    x = net.fully_connected(x, 4096);
    x = net.same_shape(LayerKind::kActivation, x);
    x = net.same_shape(LayerKind::kDropout, x);
  }
  net.same_shape(LayerKind::kSoftmax, net.fully_connected(x, classes));
}

void add_alexnet(LayerNet& net, std::int64_t classes) {
  int x = net.convolution(-1, 96, 11, 4);
  x = net.same_shape(LayerKind::kActivation, x);
  x = net.same_shape(LayerKind::kLocalResponseNorm, x);
  x = net.pool(x, 3, 2);
  x = net.convolution(x, 256, 5, 1, 2);
  x = net.same_shape(LayerKind::kActivation, x);
  x = net.same_shape(LayerKind::kLocalResponseNorm, x);
  x = net.pool(x, 3, 2);
  for (const std::int64_t channels : {384, 384, 256}) {
    x = net.convolution(x, channels, 3, 1, 1);
    x = net.same_shape(LayerKind::kActivation, x);
  }
  add_classifier(net, net.pool(x, 3, 2), classes);
}

void add_vgg16(LayerNet& net, std::int64_t classes) {
  int x = -1;
  const std::pair<std::int64_t, int> stages[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
  for (const auto& [channels, repeats] : stages) {
    for (int i = 0; i < repeats; ++i) {
      x = net.convolution(x, channels, 3, 1, 1);
      x = net.same_shape(LayerKind::kActivation, x);
    }
    x = net.pool(x, 2, 2);
  }
  add_classifier(net, x, classes);
}

int add_bottleneck(LayerNet& net, int x, std::int64_t width, std::int64_t stride, bool projected) {
  const int fork = net.same_shape(LayerKind::kFork, x);
  int main = net.convolution(fork, width, 1, stride);
  main = net.same_shape(LayerKind::kBatchNorm, main);
  main = net.same_shape(LayerKind::kActivation, main);
  main = net.convolution(main, width, 3, 1, 1);
  main = net.same_shape(LayerKind::kBatchNorm, main);
  main = net.same_shape(LayerKind::kActivation, main);
  main = net.convolution(main, 4 * width, 1);
  main = net.same_shape(LayerKind::kBatchNorm, main);
  int skip = fork;
  if (projected) {
    skip = net.convolution(fork, 4 * width, 1, stride);
    skip = net.same_shape(LayerKind::kBatchNorm, skip);
  }
  return net.same_shape(LayerKind::kActivation, net.join(main, skip));
}

void add_resnet(LayerNet& net, const std::vector<std::int64_t>& stages, std::int64_t classes) {
  int x = net.convolution(-1, 64, 7, 2, 3);
  x = net.same_shape(LayerKind::kBatchNorm, x);
  x = net.same_shape(LayerKind::kActivation, x);
  x = net.pool(x, 3, 2);
  std::int64_t width = 64;
  for (std::size_t stage = 0; stage < stages.size(); ++stage, width *= 2)
    for (std::int64_t block = 0; block < stages[stage]; ++block)
      x = add_bottleneck(net, x, width, block == 0 && stage > 0 ? 2 : 1, block == 0);
  const std::int64_t side = net.layers()[std::size_t(x)].out.height;
  x = net.pool(x, side, 1);
  net.same_shape(LayerKind::kSoftmax, net.fully_connected(x, classes));
}

}  // namespace

std::string_view layer_net_names() {
  return "alexnet, vgg16, resnet50, resnet101, resnet152, resnet:stages=A-B-C-D";
}

LayerNet make_layer_net(std::string_view description, std::int64_t batch,
                        std::int64_t default_image) {
  const std::size_t colon = description.find(':');
  const std::string_view name = description.substr(0, colon);
  const Keys keys =
      parse_keys(colon == std::string_view::npos ? "" : description.substr(colon + 1), description);
  const auto number = [&](std::string_view key, std::int64_t otherwise) {
    const auto found = keys.find(key);
    return found == keys.end() ? otherwise : parse_count(found->second, key, kMaxSide);
  };
  const std::int64_t image = number("image", default_image);
  const std::int64_t classes = number("classes", 1000);
  LayerNet net(std::string(description), batch, {3, image, image});
  const std::map<std::string_view, std::vector<std::int64_t>> resnets = {
      {"resnet50", {3, 4, 6, 3}}, {"resnet101", {3, 4, 23, 3}}, {"resnet152", {3, 8, 36, 3}}};
  const auto stages = keys.find("stages");
  if (stages != keys.end() && name != "resnet")
    throw InvalidArgument(fmt::format("'{}': only resnet takes stages", description));
  if (name == "alexnet") {
    add_alexnet(net, classes);
  } else if (name == "vgg16") {
    add_vgg16(net, classes);
  } else if (const auto known = resnets.find(name); known != resnets.end()) {
    add_resnet(net, known->second, classes);
  } else if (name == "resnet" && stages != keys.end()) {
    add_resnet(net, parse_stages(stages->second), classes);
  } else {
    throw InvalidArgument(
        fmt::format("there is no layer net '{}'; there are {}", description, layer_net_names()));
  }
  return net;
}

}  // namespace plimsoll::plan
