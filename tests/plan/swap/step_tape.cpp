// SPDX-License-Identifier: Apache-2.0
#include "step_tape.h"

#include <utility>

namespace plimsoll::plan::testing {

StepTape::Tensor StepTape::add_value(SwapStorageId storage, std::int64_t bytes,
                                     bool needs_gradient) {
  values_.push_back(
      {.storage = storage, .needs_gradient = needs_gradient, .bytes = bytes, .gradient = {}});
  return values_.size() - 1;
}

StepTape::Tensor StepTape::parameter(std::int64_t bytes) {
  const Tensor value =
      add_value(builder_.add_storage(bytes, StorageKind::kPersistent), bytes, true);
  parameters_.push_back(value);
  return value;
}

StepTape::Tensor StepTape::buffer(std::int64_t bytes) {
  return add_value(builder_.add_storage(bytes, StorageKind::kPersistent), bytes, false);
}

StepTape::Tensor StepTape::input(std::int64_t bytes) {
  const SwapStorageId storage = builder_.add_storage(bytes, StorageKind::kTransient);
  builder_.access(builder_.add_op(0, "input"), storage, Access::kWrite);
  return add_value(storage, bytes, false);
}

StepTape::Tensor StepTape::run(const Op& op) {
  const SwapOpId id = builder_.add_op(op.scratch_bytes, op.name);
  for (const Tensor value : op.inputs) builder_.access(id, values_[value].storage, Access::kRead);
  for (const Tensor value : op.parameters)
    builder_.access(id, values_[value].storage, Access::kRead);
  for (const Tensor value : op.buffers) builder_.access(id, values_[value].storage, Access::kWrite);
  SwapStorageId side;
  if (op.side_bytes > 0) {
    side = builder_.add_storage(op.side_bytes, StorageKind::kTransient);
    builder_.access(id, side, Access::kWrite);
  }
  const SwapStorageId storage = op.in_place
                                    ? values_[op.inputs.front()].storage
                                    : builder_.add_storage(op.out_bytes, StorageKind::kTransient);
  builder_.access(id, storage, Access::kWrite);
  const Tensor output = add_value(storage, op.out_bytes, true);
  records_.push_back({.op = op, .output = output, .side = side});
  return output;
}

// The first contribution makes the gradient, each further one makes a sum in its place.
void StepTape::add_gradient(SwapOpId op, Tensor value) {
  Value& v = values_[value];
  if (!v.needs_gradient) return;
  const SwapStorageId part = builder_.add_storage(v.bytes, StorageKind::kTransient);
  builder_.access(op, part, Access::kWrite);
  if (!v.gradient.valid()) {
    v.gradient = part;
    return;
  }
  const SwapOpId sum = builder_.add_op(0, "add_");
  builder_.access(sum, v.gradient, Access::kWrite);
  builder_.access(sum, part, Access::kRead);
}

void StepTape::run_backward(const Record& record) {
  const Value& output = values_[record.output];
  if (!output.gradient.valid()) return;
  const SwapOpId id = builder_.add_op(record.op.scratch_bytes, record.op.name + "_backward");
  builder_.access(id, output.gradient, Access::kRead);
  if (record.side.valid()) builder_.access(id, record.side, Access::kRead);
  if (record.op.saves.output) builder_.access(id, output.storage, Access::kRead);
  for (const Tensor value : record.op.inputs)
    if (record.op.saves.inputs) builder_.access(id, values_[value].storage, Access::kRead);
  for (const Tensor value : record.op.parameters)
    builder_.access(id, values_[value].storage, Access::kRead);
  for (const Tensor value : record.op.inputs) add_gradient(id, value);
  for (const Tensor value : record.op.parameters) add_gradient(id, value);
}

// Parameters' gradients are freed by the next step's zero_grad, before its first operator.
void StepTape::run_optimizer(Tensor parameter, Momentum momentum) {
  const Value& weight = values_[parameter];
  const int states = momentum == Momentum::kNone ? 0 : momentum == Momentum::kSgd ? 1 : 2;
  for (int k = 0; k < states; ++k) {
    const SwapStorageId state = builder_.add_storage(weight.bytes, StorageKind::kPersistent);
    for (const char* name : {"mul_", "add_"}) {
      const SwapOpId op = builder_.add_op(0, name);
      builder_.access(op, state, Access::kWrite);
      if (name[0] == 'a') builder_.access(op, weight.gradient, Access::kRead);
    }
    if (k + 1 < states) continue;
    const SwapOpId update = builder_.add_op(momentum == Momentum::kAdam ? weight.bytes : 0, "add_");
    builder_.access(update, state, Access::kRead);
    builder_.access(update, weight.storage, Access::kWrite);
  }
  if (states == 0) {
    const SwapOpId update = builder_.add_op(0, "add_");
    builder_.access(update, weight.gradient, Access::kRead);
    builder_.access(update, weight.storage, Access::kWrite);
  }
}

AccessSequence StepTape::finish(Tensor loss, Momentum momentum) {
  const SwapOpId ones = builder_.add_op(0, "ones_like");
  add_gradient(ones, loss);
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) run_backward(*record);
  for (const Tensor parameter : parameters_) run_optimizer(parameter, momentum);
  const SwapOpId last = builder_.add_op(0, "item");
  builder_.access(last, values_[loss].storage, Access::kRead);
  for (const Tensor parameter : parameters_)
    if (values_[parameter].gradient.valid())
      builder_.release_after(values_[parameter].gradient, last);
  return std::move(builder_).build();
}

}  // namespace plimsoll::plan::testing
