// SPDX-License-Identifier: Apache-2.0
// A tiny reference executor for the nets of net_builder.h and what rewriting makes of them: runs a
// graph in a given order on fp32 tensors and returns what the ops of kind "Sink" read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "plimsoll/graph/graph.h"

namespace plimsoll::rewrite::testing {

using graph::Graph;
using graph::OpId;
using graph::StorageId;
using graph::ValueId;

class Executor {
 public:
  explicit Executor(const Graph& graph)
      : graph_(graph), storage_(graph.storage_count()), is_set_(graph.storage_count(), false) {}

  std::vector<std::vector<float>> run(std::span<const OpId> order) {
    // Inputs are told apart by how many there were before, which rewriting does not change.
    std::int64_t inputs = 0;
    for (std::size_t i = 0; i < graph_.value_count(); ++i) {
      const ValueId v(i);
      if (graph_.producer(v).valid()) continue;
      std::vector<float>& data = data_of(v);
      for (std::size_t k = 0; k < data.size(); ++k)
        data[k] = noise(1000 + inputs, static_cast<std::int64_t>(k));
      ++inputs;
    }
    for (const OpId o : order) run_op(o);
    return sunk_;
  }

 private:
  // Pseudo-random in (-1, 1), the same everywhere.
  static float noise(std::int64_t seed, std::int64_t index) {
    std::uint64_t x = static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15ULL +
                      static_cast<std::uint64_t>(index) * 0xbf58476d1ce4e5b9ULL + 1;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebULL;
    x ^= x >> 29;
    return static_cast<float>(static_cast<double>(x >> 11) * 0x1p-52 - 1.0);
  }

  std::vector<float>& data_of(ValueId v) {
    std::vector<float>& data = storage_[graph_.storage(v).index()];
    data.resize(static_cast<std::size_t>(graph_.size_bytes(graph_.storage(v)) / 4));
    return data;
  }
  std::int64_t attribute(OpId o, const char* key, std::int64_t otherwise) const {
    const auto values = graph_.attribute(o, key);
    return values.empty() ? otherwise : values[0];
  }
  std::int64_t side_of(ValueId v) const { return graph_.shape(v)[2]; }
  std::int64_t channels_of(ValueId v) const { return graph_.shape(v)[1]; }

  // weight[m][c][ky][kx] of a convolution, by its seed.
  static float weight(std::int64_t seed, std::int64_t m, std::int64_t c, std::int64_t k) {
    return noise(seed, (m * 1024 + c) * 64 + k);
  }

  // Calls f(offset in the kernel, index in x's plane) for the window around (y, x).
  template <typename F>
  static void window(std::int64_t side, std::int64_t kernel, std::int64_t y, std::int64_t x, F f) {
    for (std::int64_t ky = 0; ky < kernel; ++ky) {
      for (std::int64_t kx = 0; kx < kernel; ++kx) {
        const std::int64_t iy = y + ky - kernel / 2;
        const std::int64_t ix = x + kx - kernel / 2;
        if (iy < 0 || ix < 0 || iy >= side || ix >= side) continue;
        f(ky * kernel + kx, iy * side + ix);
      }
    }
  }

  // out[m] += sum over channels of x, which are the weight's channels from `first` on.
  void add_convolution(OpId o, ValueId x, std::int64_t first, std::vector<float>& out,
                       std::int64_t out_channels) {
    const std::int64_t side = side_of(x);
    const std::int64_t area = side * side;
    const std::int64_t kernel = attribute(o, "kernel", 1);
    const std::int64_t seed = attribute(o, "seed", 0);
    const std::vector<float>& in = data_of(x);
    for (std::int64_t m = 0; m < out_channels; ++m) {
      for (std::int64_t at = 0; at < area; ++at) {
        float sum = out[static_cast<std::size_t>(m * area + at)];
        for (std::int64_t c = 0; c < channels_of(x); ++c) {
          window(side, kernel, at / side, at % side, [&](std::int64_t k, std::int64_t i) {
            sum += weight(seed, m, first + c, k) * in[static_cast<std::size_t>(c * area + i)];
          });
        }
        out[static_cast<std::size_t>(m * area + at)] = sum;
      }
    }
  }

  // Channel by channel; `first` is the weight's channel and `to` the result's for x's first.
  void depthwise(OpId o, ValueId x, std::int64_t first, std::int64_t to, std::vector<float>& out) {
    const std::int64_t side = side_of(x);
    const std::int64_t area = side * side;
    const std::int64_t kernel = attribute(o, "kernel", 1);
    const std::vector<float>& in = data_of(x);
    for (std::int64_t c = 0; c < channels_of(x); ++c) {
      for (std::int64_t at = 0; at < area; ++at) {
        float sum = 0;
        window(side, kernel, at / side, at % side, [&](std::int64_t k, std::int64_t i) {
          sum += weight(attribute(o, "seed", 0), first + c, 0, k) *
                 in[static_cast<std::size_t>(c * area + i)];
        });
        out[static_cast<std::size_t>((to + c) * area + at)] = sum;
      }
    }
  }

  void add_bias(OpId o, std::vector<float>& out, std::int64_t channels) {
    if (attribute(o, "bias", 0) == 0) return;
    const std::size_t area = out.size() / static_cast<std::size_t>(channels);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] += noise(attribute(o, "seed", 0) + 500, static_cast<std::int64_t>(i / area));
  }

  void convolution(OpId o) {
    const ValueId x = graph_.operands(o)[0];
    const ValueId y = graph_.results(o)[0];
    std::vector<float>& out = data_of(y);
    if (attribute(o, "group", 1) > 1) return depthwise(o, x, 0, 0, out);
    std::fill(out.begin(), out.end(), 0.0F);
    std::int64_t first = 0;
    for (const ValueId part : graph_.operands(o)) {  // one, or all of a ConcatConv
      add_convolution(o, part, first, out, channels_of(y));
      first += channels_of(part);
    }
    add_bias(o, out, channels_of(y));
  }

  void convolution_part(OpId o) {
    const ValueId x = graph_.operands(o)[0];
    const ValueId y = graph_.results(o)[0];
    const std::int64_t first = attribute(o, "weight_channels", 0);
    std::vector<float>& out = data_of(y);
    if (attribute(o, "group", 1) > 1)
      return depthwise(o, x, first, attribute(o, "channels", 0), out);
    // Whichever part comes first initialises the sum.
    if (!is_set_[graph_.storage(y).index()]) std::fill(out.begin(), out.end(), 0.0F);
    add_convolution(o, x, first, out, channels_of(y));
  }

  void relu(OpId o, std::int64_t to) {
    const ValueId x = graph_.operands(o)[0];
    const std::size_t offset = static_cast<std::size_t>(to * side_of(x) * side_of(x));
    const std::vector<float> in = data_of(x);
    std::vector<float>& out = data_of(graph_.results(o)[0]);
    for (std::size_t i = 0; i < in.size(); ++i) out[offset + i] = std::max(0.0F, in[i]);
  }

  void data_gradient(OpId o, std::int64_t first) {
    const ValueId dy = graph_.operands(o)[0];
    const ValueId dx = graph_.results(o)[0];
    const std::int64_t side = side_of(dy);
    const std::int64_t area = side * side;
    std::vector<float>& out = data_of(dx);
    const std::vector<float>& in = data_of(dy);
    for (std::int64_t c = 0; c < channels_of(dx); ++c) {
      for (std::int64_t at = 0; at < area; ++at) {
        float sum = 0;
        for (std::int64_t m = 0; m < channels_of(dy); ++m) {
          window(side, attribute(o, "kernel", 1), at / side, at % side,
                 [&](std::int64_t k, std::int64_t i) {
                   sum += weight(attribute(o, "seed", 0), m, first + c, k) *
                          in[static_cast<std::size_t>(m * area + i)];
                 });
        }
        out[static_cast<std::size_t>(c * area + at)] = sum;
      }
    }
  }

  void weight_gradient(OpId o, std::int64_t first, std::int64_t all) {
    const ValueId x = graph_.operands(o)[0];
    const ValueId dy = graph_.operands(o)[1];
    const std::int64_t side = side_of(x);
    const std::int64_t area = side * side;
    const std::int64_t kernel = attribute(o, "kernel", 1);
    const std::vector<float>& in = data_of(x);
    const std::vector<float>& gradient = data_of(dy);
    std::vector<float>& out = data_of(graph_.results(o)[0]);
    for (std::int64_t m = 0; m < channels_of(dy); ++m) {
      for (std::int64_t c = 0; c < channels_of(x); ++c) {
        std::vector<float> sums(static_cast<std::size_t>(kernel * kernel), 0.0F);
        for (std::int64_t at = 0; at < area; ++at) {
          window(side, kernel, at / side, at % side, [&](std::int64_t k, std::int64_t i) {
            sums[static_cast<std::size_t>(k)] += in[static_cast<std::size_t>(c * area + i)] *
                                                 gradient[static_cast<std::size_t>(m * area + at)];
          });
        }
        std::copy(sums.begin(), sums.end(),
                  out.begin() + ((m * all + first + c) * kernel * kernel));
      }
    }
  }

  void run_op(OpId o) {
    const std::string kind(graph_.kind(o));
    const auto operands = graph_.operands(o);
    const auto results = graph_.results(o);
    const std::int64_t first = attribute(o, "weight_channels", 0);
    if (kind == "Conv" || kind == "ConcatConv") {
      convolution(o);
    } else if (kind == "Conv.part" || kind == "ConcatConv.part") {
      convolution_part(o);
    } else if (kind == "Relu" || kind == "Relu.part") {
      relu(o, attribute(o, "channels", 0));
    } else if (kind == "Add") {
      const std::vector<float> a = data_of(operands[0]);
      const std::vector<float> b = data_of(operands[1]);
      for (std::size_t i = 0; i < a.size(); ++i) data_of(results[0])[i] = a[i] + b[i];
    } else if (kind == "Concat") {
      std::vector<float>& out = data_of(results[0]);
      auto to = out.begin();
      for (const ValueId v : operands) to = std::copy(data_of(v).begin(), data_of(v).end(), to);
    } else if (kind == "Split") {
      auto from = data_of(operands[0]).begin();
      for (const ValueId v : results) {
        std::copy_n(from, data_of(v).size(), data_of(v).begin());
        from += static_cast<std::ptrdiff_t>(data_of(v).size());
      }
    } else if (kind == "ConvBackwardData" || kind == "ConvBackwardData.part") {
      data_gradient(o, first);
    } else if (kind == "ConvBackwardWeight") {
      weight_gradient(o, 0, channels_of(operands[0]));
    } else if (kind == "ConvBackwardWeight.part") {
      const std::int64_t rows =
          static_cast<std::int64_t>(data_of(results[0]).size()) / channels_of(operands[1]);
      const std::int64_t kernel = attribute(o, "kernel", 1);
      weight_gradient(o, first, rows / (kernel * kernel));
    } else if (kind == "Join" || kind.ends_with(".finish")) {
      const std::vector<float> whole = data_of(operands[0]);
      data_of(results[0]) = whole;
      if (kind != "Join") add_bias(o, data_of(results[0]), channels_of(results[0]));
    } else if (kind == "Sink") {
      for (const ValueId v : operands) sunk_.push_back(data_of(v));
    } else {
      throw std::logic_error("the reference executor does not know " + kind);
    }
    for (const ValueId v : results) is_set_[graph_.storage(v).index()] = true;
  }

  const Graph& graph_;
  std::vector<std::vector<float>> storage_;
  std::vector<bool> is_set_;
  std::vector<std::vector<float>> sunk_;
};

}  // namespace plimsoll::rewrite::testing
