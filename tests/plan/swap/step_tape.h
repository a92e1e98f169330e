// SPDX-License-Identifier: Apache-2.0
// Writes down a training step the way eager execution runs it: forward operators, their backward
// operators in reverse, then the optimizer's, with storages born and freed where autograd does.
//
// Noun: StepTape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/plan/access_sequence.h"

namespace plimsoll::plan::testing {

// What a backward operator reads besides the gradient of its result.
struct Saves {
  bool inputs = false;
  bool output = false;
};

enum class Momentum : std::uint8_t { kNone, kSgd, kAdam };

class StepTape {
 public:
  using Tensor = std::size_t;  // a forward value; several may share a storage

  // A parameter with its gradient and what the optimizer keeps for it.
  Tensor parameter(std::int64_t bytes);
  // A persistent buffer, such as running statistics.
  Tensor buffer(std::int64_t bytes);
  // The step's input: copied in by its first operator, no gradient.
  Tensor input(std::int64_t bytes);

  struct Op {
    std::string name;
    std::vector<Tensor> inputs = {};      // with gradients where they need one
    std::vector<Tensor> parameters = {};  // read forward and backward, each gets a gradient
    std::vector<Tensor> buffers = {};     // written forward
    std::int64_t out_bytes = 0;
    std::int64_t side_bytes = 0;  // a second result that only backward reads
    std::int64_t scratch_bytes = 0;
    Saves saves = {};
    bool in_place = false;  // the result takes the first input's storage
  };
  Tensor run(const Op& op);

  // Adds backward from `loss` and the optimizer; spends the tape.
  AccessSequence finish(Tensor loss, Momentum momentum);

 private:
  struct Value {
    SwapStorageId storage;
    bool needs_gradient = false;
    std::int64_t bytes = 0;
    SwapStorageId gradient;
  };
  struct Record {
    Op op;
    Tensor output;
    SwapStorageId side;
  };
  Tensor add_value(SwapStorageId storage, std::int64_t bytes, bool needs_gradient);
  void run_backward(const Record& record);
  void add_gradient(SwapOpId op, Tensor value);
  void run_optimizer(Tensor parameter, Momentum momentum);

  AccessSequenceBuilder builder_;
  std::vector<Value> values_;
  std::vector<Record> records_;
  std::vector<Tensor> parameters_;
};

}  // namespace plimsoll::plan::testing
