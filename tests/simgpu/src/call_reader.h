// SPDX-License-Identifier: Apache-2.0
// Reads an operator's arguments: what a job needs of them, which bytes they touch, and a key that
// two calls share whenever their results have the same metadata.
//
// Nouns: ReadCall.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "kernel_job.h"
#include "operator_facts.h"
#include "race_checker.h"
#include "virtual_clock.h"

namespace plimsoll::simgpu {

struct ReadCall {
  std::shared_ptr<KernelJob> job;
  std::vector<at::Tensor> tensors;  // as in job->operands
  std::vector<RangeAccess> accesses;
  std::string key;
  bool has_key = true;  // false: an argument of a kind that no key describes
  c10::DeviceIndex device = -1;
  std::int64_t bytes = 0;  // of all operands
};

// Errors: c10::Error for tensors of several devices, host tensors where only numbers may be,
// storages without memory (moved away), memory that nobody holds, and sparse tensors.
ReadCall read_call(const c10::OperatorHandle& op, const OperatorFacts& facts,
                   const torch::jit::Stack& stack);

// Where jobs find a device tensor's storage. `user` is named in errors, as read_call's.
StorageBytes device_bytes(const at::Tensor& tensor, const std::string& user);

// The bytes from the first to the last element; none for tensors without elements.
ByteRange bytes_of(const at::Tensor& tensor);

// Floating-point operations of the products; 0 for all others, which move bytes.
double flops_of(const OperatorFacts& facts, const ReadCall& call,
                const std::vector<ResultPlan>& results);

}  // namespace plimsoll::simgpu
