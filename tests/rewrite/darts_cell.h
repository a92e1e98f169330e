// SPDX-License-Identifier: Apache-2.0
// The normal cell of DARTS, second order (Liu, Simonyan, Yang, ICLR 2019), as SERENITY measures it:
// every feature map 48 x 28 x 28 fp32, followed by the 1x1 convolution with which the next cell
// reads the concatenation of its four nodes.
#pragma once

#include <vector>

#include "net_builder.h"

namespace plimsoll::rewrite::testing {

inline Graph darts_cell(std::int64_t channels = 48, std::int64_t side = 28) {
  NetBuilder net(side);
  const ValueId s0 = net.input(channels);
  const ValueId s1 = net.input(channels);
  // relu, depthwise, pointwise, twice; batch norm is folded.
  const auto separable = [&](ValueId x) {
    for (int i = 0; i < 2; ++i) x = net.conv(net.depthwise(net.relu(x), 3), channels, 1);
    return x;
  };
  // The dilated one: once, and dilation does not change sizes.
  const auto dilated = [&](ValueId x) {
    return net.conv(net.depthwise(net.relu(x), 3), channels, 1);
  };
  // Named one by one: the order of evaluation of arguments is not fixed.
  const ValueId n2_left = separable(s0);
  const ValueId n2 = net.add(n2_left, separable(s1));
  const ValueId n3_left = separable(s0);
  const ValueId n3 = net.add(n3_left, separable(s1));
  const ValueId n4 = net.add(separable(s1), s0);
  const ValueId n5 = net.add(s0, dilated(n2));
  net.sink({net.concat_conv({n2, n3, n4, n5}, channels, 1)});
  return net.build();
}

}  // namespace plimsoll::rewrite::testing
