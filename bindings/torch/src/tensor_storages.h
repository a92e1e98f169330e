// SPDX-License-Identifier: Apache-2.0
// Which storages stand behind an operator's values.
//
// Sparse and nested tensors have no storage of their own: their parts have. Their kernels read the
// parts without an operator that could be seen, so the parts count as operands themselves.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

namespace plimsoll::detail {

// Null for what has no bytes of its own on this device. Wrapped numbers are values: they are born
// and die with one call and are left on the heap. No reference is taken.
c10::StorageImpl* storage_of(const at::Tensor& tensor);

// The tensors that a sparse, compressed, nested or quantised tensor is made of, beside its storage.
c10::SmallVector<at::Tensor, 4> parts_of(const at::Tensor& tensor);

// Says whether a tensor may have parts; cheap.
bool has_parts(const at::Tensor& tensor);

// Calls `visit` with the storage of every tensor in a value: tensors, lists and optionals of them,
// and whatever tuples and generic lists hold.
template <typename Visit>
void visit_storages(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    // No reference is taken: use counts steer what autograd steals and reuses.
    const at::Tensor& tensor = value.toTensor();
    if (c10::StorageImpl* storage = storage_of(tensor)) visit(storage);
    if (!has_parts(tensor)) return;
    for (const at::Tensor& part : parts_of(tensor)) {
      if (c10::StorageImpl* storage = storage_of(part)) visit(storage);
    }
  } else if (value.isStorage()) {
    const c10::Storage storage = value.toStorage();
    if (storage.nbytes() > 0 && storage.device().is_cpu()) visit(storage.unsafeGetStorageImpl());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) visit_storages(element, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) visit_storages(element, visit);
  }
}

}  // namespace plimsoll::detail
