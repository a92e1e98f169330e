// SPDX-License-Identifier: Apache-2.0
// Graphs and devices that several tests of the planner share.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/graph/builder.h"
#include "plimsoll/plan/device_model.h"

namespace plimsoll::plan::testing {

// A device whose figures are round: a byte and an op take about a nanosecond.
inline DeviceModel round_device(double copy_bytes_per_ns = 1) {
  DeviceModel device;
  device.name = "round";
  device.memory_bytes = 1 << 30;
  device.alignment_bytes = 1;
  device.flops_per_second = 1e9;
  device.flops_efficiency = 1;
  device.bytes_per_second = 1e9;
  device.bandwidth_efficiency = 1;
  device.launch_ns = 1;
  device.copy_out_bytes_per_second = copy_bytes_per_ns * 1e9;
  device.copy_in_bytes_per_second = copy_bytes_per_ns * 1e9;
  device.copy_latency_ns = 1;
  return device;
}

// `blocks` equal blocks: forward k reads activation k - 1, backward k reads activation k - 1 and
// the gradient. The activations of the early blocks are what a planner can move.
//
//     f1 -> f2 -> ... -> fn -> bn -> ... -> b2 -> b1
//      \____ \______________________/______/
inline graph::Graph equal_blocks(int blocks, std::int64_t bytes) {
  graph::GraphBuilder builder;
  std::vector<graph::ValueId> activation = {
      builder.add_tensor(bytes, graph::ValueKind::kInput, false, "input")};
  for (int i = 0; i < blocks; ++i) {
    activation.push_back(builder.add_tensor(bytes));
    builder.add_op({.kind = "forward",
                    .operands = {activation[std::size_t(i)]},
                    .results = {activation.back()},
                    .flags = graph::kRecomputable,
                    .attributes = {{"flops", {4 * bytes}}}});
  }
  graph::ValueId gradient = activation.back();
  for (int i = blocks; i > 0; --i) {
    const graph::ValueId next = builder.add_tensor(bytes, graph::ValueKind::kGradient);
    builder.add_op({.kind = "backward",
                    .operands = {gradient, activation[std::size_t(i - 1)]},
                    .results = {next},
                    .phase = graph::Phase::kBackward,
                    .attributes = {{"flops", {8 * bytes}}}});
    gradient = next;
  }
  return builder.build();
}

}  // namespace plimsoll::plan::testing
