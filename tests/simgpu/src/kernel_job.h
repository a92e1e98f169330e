// SPDX-License-Identifier: Apache-2.0
// One operator's call as the stream runs it: the CPU kernel over the device's bytes. It holds
// addresses and metadata, never a device tensor, which would keep memory alive that a GPU would
// have freed.
//
// Nouns: TensorShape, Operand, KernelJob, ResultPlan, CallPlan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/DimVector.h>

namespace plimsoll::simgpu {

struct TensorShape {
  c10::DimVector sizes;
  c10::DimVector strides;
  std::int64_t offset = 0;  // in elements
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool is_conjugate = false;
  bool is_negative = false;
  bool operator==(const TensorShape&) const = default;
};
TensorShape shape_of(const at::Tensor& tensor);

struct Operand {
  std::size_t argument = 0;
  int element = -1;  // of a list argument
  bool is_defined = false;
  bool is_wrapped_number = false;
  int storage = -1;  // into KernelJob::storages; -1: the host tensor
  TensorShape shape;
  at::Tensor host;
};

struct StorageBytes {
  std::byte* bytes = nullptr;  // where a job finds them
  std::size_t size = 0;
};

enum class ArgumentKind : std::uint8_t { kValue, kTensor, kTensorList, kOptionalTensorList };

// Where one result's bytes are.
struct ResultPlan {
  enum class Source : std::uint8_t { kUndefined, kOperand, kView, kNew };
  Source source = Source::kUndefined;
  int index = -1;  // of the operand, the operand's storage, or the new storage
  TensorShape shape;
  bool operator==(const ResultPlan&) const = default;
};

// An operand that the kernel gave another size: an `out` that did not fit.
struct ResizePlan {
  std::size_t operand = 0;
  TensorShape shape;
  std::size_t bytes = 0;  // of its storage
};

// What a call with this signature returns.
struct CallPlan {
  std::vector<ResultPlan> results;     // lists flattened
  std::vector<int> list_lengths;       // each return: -1 for a tensor
  std::vector<std::size_t> new_bytes;  // each new storage
  std::int64_t workspace_bytes = 0;
  std::vector<ResizePlan> resized;
  // An operand's metadata changes in a way that cannot be done ahead of the kernel.
  bool is_always_waited_for = false;
};

// What the kernel did. Tensors are the CPU's.
struct CallOutcome {
  CallPlan plan;
  torch::jit::Stack values;               // as returned
  std::vector<at::Storage> new_storages;  // as in plan.new_bytes
  std::vector<at::Tensor> operands;       // the CPU's tensors over the device's bytes
};

struct KernelJob {
  c10::OperatorHandle op;
  std::vector<ArgumentKind> kinds;   // each argument
  torch::jit::Stack values;          // each argument; operands are filled in by the job
  std::vector<std::size_t> lengths;  // of each list argument, 0 for the others
  std::vector<Operand> operands;
  std::vector<StorageBytes> storages;

  explicit KernelJob(const c10::OperatorHandle& handle) : op(handle) {}

  // On the queue's thread. Errors: what the kernel throws.
  CallOutcome run() const;

 private:
  std::vector<at::Tensor> make_operands(std::vector<at::Storage>& made) const;
  torch::jit::Stack make_stack(const std::vector<at::Tensor>& tensors) const;
  void classify(const std::vector<at::Storage>& made, CallOutcome& outcome) const;
};

}  // namespace plimsoll::simgpu
