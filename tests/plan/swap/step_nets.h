// SPDX-License-Identifier: Apache-2.0
// Training steps of well-known nets as access sequences, in fp32, with plausible sizes, and random
// small sequences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/plan/access_sequence.h"

#include "step_tape.h"

namespace plimsoll::plan::testing {

struct NetStep {
  std::string name;
  AccessSequence sequence;
};

// Bottleneck blocks per stage; 3-4-6-3 is ResNet-50. `image` pixels a side.
AccessSequence resnet_step(const std::vector<int>& stages, std::int64_t batch, std::int64_t image,
                           Momentum momentum = Momentum::kSgd);
AccessSequence densenet_step(std::int64_t batch, std::int64_t image);
AccessSequence unet_step(std::int64_t batch, std::int64_t image);
AccessSequence gpt_step(int layers, std::int64_t width, std::int64_t context, std::int64_t batch,
                        std::int64_t vocabulary);

// The four nets whose traffic is watched: ResNet-50, DenseNet-121, U-Net, GPT.
std::vector<NetStep> watched_steps();

// The most that lives at once, scratch included: what a run without a budget needs.
std::int64_t peak_bytes(const AccessSequence& sequence);

struct RandomShape {
  int most_ops = 8;
  int most_storages = 5;
  int most_accesses = 4;  // per storage
  std::int64_t most_bytes = 9;
};
// Any valid sequence: persistent, transient, lapping, immovable and never touched storages.
AccessSequence random_sequence(std::uint64_t seed, const RandomShape& shape);

}  // namespace plimsoll::plan::testing
