// SPDX-License-Identifier: Apache-2.0
// The commands that need LibTorch, `train` and `models`, and what `doctor` asks it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "plimsoll/train/trainer.h"

#include "command.h"
#include "machine_facts.h"

namespace plimsoll::cli {

// Called behind each step of `train` with the number of steps done and the side under the budget,
// so that a test can make it differ from stock.
using TestingAfterStep = std::function<void(std::int64_t, train::Trainer&)>;

std::unique_ptr<Command> make_train_command(TestingAfterStep testing_after_step = {});
std::unique_ptr<Command> make_models_command();
LibTorchFacts find_libtorch_facts();

}  // namespace plimsoll::cli
