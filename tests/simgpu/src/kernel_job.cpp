// SPDX-License-Identifier: Apache-2.0
#include "kernel_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "temporary_memory.h"

namespace plimsoll::simgpu {
namespace {

// Resizable, so that an `out` that does not fit moves to host memory and is seen to have moved.
at::Storage storage_over(const StorageBytes& bytes) {
  return {c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes.size,
                                                c10::DataPtr(bytes.bytes, c10::Device(c10::kCPU)),
                                                c10::GetCPUAllocator(), true)};
}

at::Tensor tensor_over(const at::Storage& storage, const Operand& operand) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      at::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(operand.shape.dtype));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(operand.shape.sizes, operand.shape.strides, operand.shape.offset);
  if (operand.is_wrapped_number) impl->set_wrapped_number(true);
  if (operand.shape.is_conjugate) impl->_set_conj(true);
  if (operand.shape.is_negative) impl->_set_neg(true);
  return tensor;
}

}  // namespace

TensorShape shape_of(const at::Tensor& tensor) {
  TensorShape shape;
  shape.sizes = c10::DimVector(tensor.sizes());
  shape.strides = c10::DimVector(tensor.strides());
  shape.offset = tensor.storage_offset();
  shape.dtype = tensor.scalar_type();
  shape.is_conjugate = tensor.is_conj();
  shape.is_negative = tensor.is_neg();
  return shape;
}

std::vector<at::Tensor> KernelJob::make_operands(std::vector<at::Storage>& made) const {
  for (const StorageBytes& bytes : storages) made.push_back(storage_over(bytes));
  std::vector<at::Tensor> tensors;
  tensors.reserve(operands.size());
  for (const Operand& operand : operands) {
    if (!operand.is_defined) {
      tensors.emplace_back();
    } else if (operand.storage < 0) {
      tensors.push_back(operand.host);
    } else {
      tensors.push_back(tensor_over(made[static_cast<std::size_t>(operand.storage)], operand));
    }
  }
  return tensors;
}

torch::jit::Stack KernelJob::make_stack(const std::vector<at::Tensor>& tensors) const {
  torch::jit::Stack stack = values;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == ArgumentKind::kTensorList) {
      c10::List<at::Tensor> list;
      list.resize(lengths[i]);
      stack[i] = std::move(list);
    } else if (kinds[i] == ArgumentKind::kOptionalTensorList) {
      c10::List<std::optional<at::Tensor>> list;
      list.resize(lengths[i]);
      stack[i] = std::move(list);
    }
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    if (operand.element < 0) {
      stack[operand.argument] = tensors[i];
    } else if (kinds[operand.argument] == ArgumentKind::kTensorList) {
      stack[operand.argument].toTensorList().set(static_cast<std::size_t>(operand.element),
                                                 tensors[i]);
    } else if (operand.is_defined) {
      auto list = stack[operand.argument].toOptionalTensorList();
      list.set(static_cast<std::size_t>(operand.element), tensors[i]);
    }
  }
  return stack;
}

CallOutcome KernelJob::run() const {
  // Below autograd, and out of sight of whoever watches operators on the host.
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::AutoGradMode no_grad(false);
  CallOutcome outcome;
  std::vector<at::Storage> made;
  outcome.operands = make_operands(made);
  torch::jit::Stack stack = make_stack(outcome.operands);
  const TemporaryMemory temporaries;
  op.callBoxed(&stack);
  outcome.values = std::move(stack);
  classify(made, outcome);
  std::int64_t results = 0;
  for (const std::size_t bytes : outcome.plan.new_bytes) {
    results += static_cast<std::int64_t>(bytes);
  }
  outcome.plan.workspace_bytes = std::max<std::int64_t>(0, temporaries.peak_bytes() - results);
  return outcome;
}

namespace {

class Classifier {
 public:
  Classifier(const std::vector<at::Storage>& made, CallOutcome& outcome)
      : made_(made), outcome_(outcome) {}

  ResultPlan classify(const at::Tensor& tensor) {
    ResultPlan plan;
    if (!tensor.defined()) return plan;
    plan.shape = shape_of(tensor);
    const auto& operands = outcome_.operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].unsafeGetTensorImpl() != tensor.unsafeGetTensorImpl()) continue;
      plan.source = ResultPlan::Source::kOperand;
      plan.index = static_cast<int>(i);
      return plan;
    }
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    plan.index = find(made_, storage);
    plan.source = ResultPlan::Source::kView;
    if (plan.index >= 0) return plan;
    plan.source = ResultPlan::Source::kNew;
    plan.index = find(outcome_.new_storages, storage);
    if (plan.index >= 0) return plan;
    plan.index = static_cast<int>(outcome_.new_storages.size());
    outcome_.new_storages.push_back(tensor.storage());
    outcome_.plan.new_bytes.push_back(tensor.storage().nbytes());
    return plan;
  }

 private:
  static int find(const std::vector<at::Storage>& storages, const c10::StorageImpl* wanted) {
    for (std::size_t i = 0; i < storages.size(); ++i) {
      if (storages[i].unsafeGetStorageImpl() == wanted) return static_cast<int>(i);
    }
    return -1;
  }

  const std::vector<at::Storage>& made_;
  CallOutcome& outcome_;
};

}  // namespace

void KernelJob::classify(const std::vector<at::Storage>& made, CallOutcome& outcome) const {
  Classifier classifier(made, outcome);
  for (const c10::IValue& value : outcome.values) {
    if (value.isTensorList()) {
      const auto list = value.toTensorList();
      outcome.plan.list_lengths.push_back(static_cast<int>(list.size()));
      for (std::size_t i = 0; i < list.size(); ++i) {
        outcome.plan.results.push_back(classifier.classify(list.get(i)));
      }
      continue;
    }
    outcome.plan.list_lengths.push_back(-1);
    outcome.plan.results.push_back(value.isTensor() ? classifier.classify(value.toTensor())
                                                    : ResultPlan{});
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    if (!operand.is_defined || operand.storage < 0) continue;
    const at::Tensor& after = outcome.operands[i];
    const StorageBytes& bytes = storages[static_cast<std::size_t>(operand.storage)];
    const TensorShape shape = shape_of(after);
    if (shape == operand.shape && after.storage().data() == bytes.bytes) continue;
    outcome.plan.resized.push_back({i, shape, after.storage().nbytes()});
    const bool has_grown = after.storage().nbytes() > bytes.size;
    outcome.plan.is_always_waited_for |= !has_grown;
  }
}

}  // namespace plimsoll::simgpu
