// SPDX-License-Identifier: Apache-2.0
#include "step_nets.h"

#include <algorithm>
#include <random>

namespace plimsoll::plan::testing {
namespace {

constexpr std::int64_t kFloat = 4;

using Tensor = StepTape::Tensor;

// A feature map: batch x channels x side x side.
struct Map {
  Tensor tensor = 0;
  std::int64_t channels = 0;
  std::int64_t side = 0;
};

class ConvNet {
 public:
  explicit ConvNet(std::int64_t batch) : batch_(batch) {}

  StepTape& tape() { return tape_; }
  std::int64_t bytes(std::int64_t channels, std::int64_t side) const {
    return batch_ * channels * side * side * kFloat;
  }
  Map input(std::int64_t channels, std::int64_t side) {
    return {.tensor = tape_.input(bytes(channels, side)), .channels = channels, .side = side};
  }

  Map conv(const Map& x, std::int64_t channels, std::int64_t kernel, std::int64_t stride) {
    const std::int64_t side = x.side / stride;
    const Tensor weight = tape_.parameter(channels * x.channels * kernel * kernel * kFloat);
    const std::int64_t scratch = kernel == 1 ? 0 : bytes(x.channels, x.side) / 2;
    return {.tensor = tape_.run({.name = "convolution",
                                 .inputs = {x.tensor},
                                 .parameters = {weight},
                                 .out_bytes = bytes(channels, side),
                                 .scratch_bytes = scratch,
                                 .saves = {.inputs = true}}),
            .channels = channels,
            .side = side};
  }

  Map norm(const Map& x) {
    const std::int64_t row = x.channels * kFloat;
    const Tensor weight = tape_.parameter(row);
    const Tensor bias = tape_.parameter(row);
    const Tensor mean = tape_.buffer(row);
    const Tensor variance = tape_.buffer(row);
    return with(x, tape_.run({.name = "native_batch_norm",
                              .inputs = {x.tensor},
                              .parameters = {weight, bias},
                              .buffers = {mean, variance},
                              .out_bytes = bytes(x.channels, x.side),
                              .side_bytes = 2 * row,
                              .saves = {.inputs = true}}));
  }

  Map relu(const Map& x) {
    return with(x, tape_.run({.name = "relu_",
                              .inputs = {x.tensor},
                              .out_bytes = bytes(x.channels, x.side),
                              .saves = {.output = true},
                              .in_place = true}));
  }

  Map pool(const Map& x, std::int64_t stride) {
    const std::int64_t side = x.side / stride;
    return {.tensor = tape_.run({.name = "max_pool2d",
                                 .inputs = {x.tensor},
                                 .out_bytes = bytes(x.channels, side),
                                 .side_bytes = 2 * bytes(x.channels, side),
                                 .saves = {.inputs = true}}),
            .channels = x.channels,
            .side = side};
  }

  Map join(const char* name, const std::vector<Map>& parts, std::int64_t channels) {
    std::vector<Tensor> inputs;
    for (const Map& part : parts) inputs.push_back(part.tensor);
    const std::int64_t side = parts.front().side;
    return {
        .tensor = tape_.run({.name = name, .inputs = inputs, .out_bytes = bytes(channels, side)}),
        .channels = channels,
        .side = side};
  }

  Tensor classify(const Map& x, std::int64_t classes) {
    const Tensor mean = tape_.run(
        {.name = "mean", .inputs = {x.tensor}, .out_bytes = batch_ * x.channels * kFloat});
    const Tensor weight = tape_.parameter(x.channels * classes * kFloat);
    const Tensor scores = tape_.run({.name = "addmm",
                                     .inputs = {mean},
                                     .parameters = {weight},
                                     .out_bytes = batch_ * classes * kFloat,
                                     .saves = {.inputs = true}});
    return loss(scores, batch_ * classes * kFloat);
  }

  Tensor loss(Tensor scores, std::int64_t score_bytes) {
    const Tensor logs = tape_.run({.name = "log_softmax",
                                   .inputs = {scores},
                                   .out_bytes = score_bytes,
                                   .saves = {.output = true}});
    return tape_.run({.name = "nll_loss", .inputs = {logs}, .out_bytes = kFloat});
  }

 private:
  Map with(const Map& x, Tensor tensor) const {
    return {.tensor = tensor, .channels = x.channels, .side = x.side};
  }

  std::int64_t batch_;
  StepTape tape_;
};

Map bottleneck(ConvNet& net, const Map& x, std::int64_t width, std::int64_t stride) {
  Map y = net.relu(net.norm(net.conv(x, width, 1, 1)));
  y = net.relu(net.norm(net.conv(y, width, 3, stride)));
  y = net.norm(net.conv(y, 4 * width, 1, 1));
  const bool same = stride == 1 && x.channels == 4 * width;
  const Map shortcut = same ? x : net.norm(net.conv(x, 4 * width, 1, stride));
  return net.relu(net.join("add", {y, shortcut}, 4 * width));
}

Map double_conv(ConvNet& net, const Map& x, std::int64_t channels) {
  const Map y = net.relu(net.norm(net.conv(x, channels, 3, 1)));
  return net.relu(net.norm(net.conv(y, channels, 3, 1)));
}

}  // namespace

AccessSequence resnet_step(const std::vector<int>& stages, std::int64_t batch, std::int64_t image,
                           Momentum momentum) {
  ConvNet net(batch);
  Map x = net.pool(net.relu(net.norm(net.conv(net.input(3, image), 64, 7, 2))), 2);
  std::int64_t width = 64;
  for (std::size_t stage = 0; stage < stages.size(); ++stage, width *= 2)
    for (int block = 0; block < stages[stage]; ++block)
      x = bottleneck(net, x, width, block == 0 && stage > 0 ? 2 : 1);
  return net.tape().finish(net.classify(x, 1000), momentum);
}

AccessSequence densenet_step(std::int64_t batch, std::int64_t image) {
  constexpr std::int64_t kGrowth = 32;
  ConvNet net(batch);
  Map x = net.pool(net.relu(net.norm(net.conv(net.input(3, image), 64, 7, 2))), 2);
  const std::vector<int> layers = {6, 12, 24, 16};
  for (std::size_t block = 0; block < layers.size(); ++block) {
    std::vector<Map> parts = {x};
    std::int64_t channels = x.channels;
    for (int layer = 0; layer < layers[block]; ++layer, channels += kGrowth) {
      const Map all = net.join("cat", parts, channels);
      const Map narrow = net.conv(net.relu(net.norm(all)), 4 * kGrowth, 1, 1);
      parts.push_back(net.conv(net.relu(net.norm(narrow)), kGrowth, 3, 1));
    }
    x = net.join("cat", parts, channels);
    if (block + 1 < layers.size())
      x = net.pool(net.conv(net.relu(net.norm(x)), channels / 2, 1, 1), 2);
  }
  return net.tape().finish(net.classify(net.relu(net.norm(x)), 1000), Momentum::kSgd);
}

AccessSequence unet_step(std::int64_t batch, std::int64_t image) {
  ConvNet net(batch);
  Map x = net.input(3, image);
  std::vector<Map> skips;
  std::int64_t channels = 32;
  for (int level = 0; level < 4; ++level, channels *= 2) {
    skips.push_back(double_conv(net, x, channels));
    x = net.pool(skips.back(), 2);
  }
  x = double_conv(net, x, channels);
  while (!skips.empty()) {
    channels /= 2;
    const Map skip = skips.back();
    skips.pop_back();
    Map up = net.conv(x, 4 * channels, 1, 1);  // pixel shuffle: same bytes, twice the side
    up.channels = channels;
    up.side = skip.side;
    x = double_conv(net, net.join("cat", {skip, up}, 2 * channels), channels);
  }
  const Map scores = net.conv(x, 2, 1, 1);
  return net.tape().finish(net.loss(scores.tensor, net.bytes(2, image)), Momentum::kSgd);
}

AccessSequence gpt_step(int layers, std::int64_t width, std::int64_t context, std::int64_t batch,
                        std::int64_t vocabulary) {
  ConvNet net(batch);
  StepTape& tape = net.tape();
  const std::int64_t rows = batch * context * kFloat;
  const auto linear = [&](Tensor x, std::int64_t in, std::int64_t out) {
    const Tensor weight = tape.parameter(in * out * kFloat);
    const Tensor bias = tape.parameter(out * kFloat);
    return tape.run({.name = "addmm",
                     .inputs = {x},
                     .parameters = {weight, bias},
                     .out_bytes = rows * out,
                     .saves = {.inputs = true}});
  };
  const auto norm = [&](Tensor x) {
    const Tensor weight = tape.parameter(width * kFloat);
    const Tensor bias = tape.parameter(width * kFloat);
    return tape.run({.name = "native_layer_norm",
                     .inputs = {x},
                     .parameters = {weight, bias},
                     .out_bytes = rows * width,
                     .side_bytes = 2 * rows,
                     .saves = {.inputs = true}});
  };
  const auto add = [&](Tensor a, Tensor b) {
    return tape.run({.name = "add", .inputs = {a, b}, .out_bytes = rows * width});
  };
  const Tensor table = tape.parameter(vocabulary * width * kFloat);
  const Tensor tokens = tape.input(2 * rows);
  Tensor x = tape.run({.name = "embedding",
                       .inputs = {tokens},
                       .parameters = {table},
                       .out_bytes = rows * width,
                       .saves = {.inputs = true}});
  for (int layer = 0; layer < layers; ++layer) {
    const Tensor qkv = linear(norm(x), width, 3 * width);
    const Tensor attended = tape.run({.name = "scaled_dot_product_attention",
                                      .inputs = {qkv},
                                      .out_bytes = rows * width,
                                      .side_bytes = rows * (width / 64),
                                      .saves = {.inputs = true, .output = true}});
    x = add(x, linear(attended, width, width));
    const Tensor wide = linear(norm(x), width, 4 * width);
    const Tensor active = tape.run({.name = "gelu",
                                    .inputs = {wide},
                                    .out_bytes = rows * 4 * width,
                                    .saves = {.inputs = true}});
    x = add(x, linear(active, 4 * width, width));
  }
  const Tensor scores = linear(norm(x), width, vocabulary);
  return tape.finish(net.loss(scores, rows * vocabulary), Momentum::kAdam);
}

std::vector<NetStep> watched_steps() {
  std::vector<NetStep> nets;
  nets.push_back({"ResNet-50@96 b8", resnet_step({3, 4, 6, 3}, 8, 96)});
  nets.push_back({"DenseNet-121@96 b8", densenet_step(8, 96)});
  nets.push_back({"U-Net@128 b4", unet_step(4, 128)});
  nets.push_back({"GPT 6x384, 256 tokens b4", gpt_step(6, 384, 256, 4, 8192)});
  return nets;
}

std::int64_t peak_bytes(const AccessSequence& sequence) {
  const std::int64_t n = sequence.op_count();
  std::vector<std::int64_t> alive(static_cast<std::size_t>(n));
  for (std::size_t op = 0; op < alive.size(); ++op)
    alive[op] = sequence.scratch_bytes(SwapOpId(op));
  for (std::int64_t s = 0; s < sequence.storage_count(); ++s) {
    const StorageLife& life = sequence.life(SwapStorageId(static_cast<std::size_t>(s)));
    for (std::int64_t p = life.birth; p <= life.death; ++p)
      alive[static_cast<std::size_t>(p % n)] += life.size_bytes;
  }
  return *std::ranges::max_element(alive);
}

AccessSequence random_sequence(std::uint64_t seed, const RandomShape& shape) {
  std::mt19937_64 random(seed);
  // Modulo, not a distribution: the same numbers on every standard library.
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  AccessSequenceBuilder builder;
  const std::int64_t n = 1 + below(shape.most_ops);
  for (std::int64_t op = 0; op < n; ++op)
    builder.add_op(below(3) == 0 ? below(shape.most_bytes) : 0);
  const std::int64_t storages = 1 + below(shape.most_storages);
  for (std::int64_t s = 0; s < storages; ++s) {
    const bool is_persistent = below(2) == 0;
    const SwapStorageId storage =
        builder.add_storage(below(10) == 0 ? 0 : 1 + below(shape.most_bytes),
                            is_persistent ? StorageKind::kPersistent : StorageKind::kTransient,
                            below(12) == 0 ? Mobility::kImmovable : Mobility::kMovable);
    const std::int64_t birth = below(n);
    const std::int64_t reach = below(3) == 0 ? 2 * n : n;
    const auto at = [&](std::int64_t position) {
      return std::pair(SwapOpId(static_cast<std::size_t>(position % n)),
                       position < n ? Lap::kThisStep : Lap::kPreviousStep);
    };
    std::int64_t last = birth;
    if (!is_persistent) builder.access(at(birth).first, storage, Access::kWrite);
    for (std::int64_t k = below(shape.most_accesses + 1); k > 0; --k) {
      const std::int64_t position = is_persistent ? below(n) : birth + below(reach - birth);
      const Access access = below(3) == 0 ? Access::kWrite : Access::kRead;
      builder.access(at(position).first, storage, access, at(position).second);
      last = std::max(last, position);
    }
    if (is_persistent || below(2) == 0) continue;
    const std::int64_t death = last + below(std::max(reach, last + 1) - last);
    builder.release_after(storage, at(death).first, at(death).second);
  }
  return std::move(builder).build();
}

}  // namespace plimsoll::plan::testing
