// SPDX-License-Identifier: Apache-2.0
// Which storages stand behind an operator's values.
//
// Noun: Place.
//
// Sparse and nested tensors have no storage of their own: their parts have. Their kernels read the
// parts without an operator that could be seen, so the parts count as operands themselves.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include "plimsoll/base/bytes.h"

namespace plimsoll::detail {

// The device whose memory a session keeps, and what it rounds storages up to there.
struct Place {
  c10::Device device;
  std::int64_t alignment_bytes;

  bool is_host() const { return device.is_cpu(); }
  bool holds(const c10::Device& other) const {
    // The CPU's tensors carry no index.
    return other.type() == device.type() && (is_host() || other.index() == device.index());
  }
  std::int64_t rounded(std::size_t bytes) const {
    return align_up(static_cast<std::int64_t>(bytes), alignment_bytes);
  }
};

// Null for what has no bytes of its own in this place. Wrapped numbers are values: they are born
// and die with one call and are left on the heap. No reference is taken.
c10::StorageImpl* storage_of(const at::Tensor& tensor, const Place& place);
// The same, but for one without bytes too: an operator may give it some.
c10::StorageImpl* storage_or_empty_of(const at::Tensor& tensor, const Place& place);

// The tensors that a sparse, compressed, nested or quantised tensor is made of, beside its storage.
c10::SmallVector<at::Tensor, 4> parts_of(const at::Tensor& tensor);

// Says whether a tensor may have parts in this place; cheap.
bool has_parts(const at::Tensor& tensor, const Place& place);

// Calls `visit` with the storage, be it empty, of every tensor in a value: tensors, lists and
// optionals of them, and whatever tuples and generic lists hold.
template <typename Visit>
void visit_storages(const c10::IValue& value, const Place& place, const Visit& visit) {
  if (value.isTensor()) {
    // No reference is taken: use counts steer what autograd steals and reuses.
    const at::Tensor& tensor = value.toTensor();
    if (c10::StorageImpl* storage = storage_or_empty_of(tensor, place)) visit(storage);
    if (!has_parts(tensor, place)) return;
    for (const at::Tensor& part : parts_of(tensor)) {
      if (c10::StorageImpl* storage = storage_of(part, place)) visit(storage);
    }
  } else if (value.isStorage()) {
    const c10::Storage storage = value.toStorage();
    if (storage.nbytes() > 0 && place.holds(storage.device()))
      visit(storage.unsafeGetStorageImpl());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) visit_storages(element, place, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements())
      visit_storages(element, place, visit);
  }
}

}  // namespace plimsoll::detail
