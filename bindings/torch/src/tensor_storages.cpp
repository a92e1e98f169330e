// SPDX-License-Identifier: Apache-2.0
#include "tensor_storages.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

namespace plimsoll::detail {
namespace {

bool is_compressed(c10::Layout layout) {
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
         layout == c10::kSparseBsc;
}

}  // namespace

c10::StorageImpl* storage_or_empty_of(const at::Tensor& tensor, const Place& place) {
  if (!tensor.defined() || !tensor.has_storage() || !place.holds(tensor.device())) return nullptr;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return nullptr;
  return tensor.storage().unsafeGetStorageImpl();
}

c10::StorageImpl* storage_of(const at::Tensor& tensor, const Place& place) {
  c10::StorageImpl* storage = storage_or_empty_of(tensor, place);
  return storage != nullptr && storage->nbytes() > 0 ? storage : nullptr;
}

bool has_parts(const at::Tensor& tensor, const Place& place) {
  if (!tensor.defined() || !place.holds(tensor.device())) return false;
  return tensor.layout() != c10::kStrided || tensor.is_nested() || tensor.is_quantized();
}

c10::SmallVector<at::Tensor, 4> parts_of(const at::Tensor& tensor) {
  // Through the implementations: the methods are operators, which would be seen as the program's.
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  c10::SmallVector<at::Tensor, 4> parts;
  if (tensor.is_sparse()) {
    if (auto* sparse = dynamic_cast<at::SparseTensorImpl*>(impl)) {
      parts = {sparse->indices(), sparse->values()};
    }
  } else if (is_compressed(tensor.layout())) {
    if (auto* compressed = dynamic_cast<at::SparseCsrTensorImpl*>(impl)) {
      parts = {compressed->compressed_indices(), compressed->plain_indices(), compressed->values()};
    }
  } else if (tensor.is_nested()) {
    if (auto* nested = dynamic_cast<at::native::NestedTensorImpl*>(impl)) {
      parts = {nested->get_nested_sizes(), nested->get_nested_strides(),
               nested->get_storage_offsets()};
    }
  } else if (tensor.is_quantized()) {
    if (auto* quantized = dynamic_cast<at::QTensorImpl*>(impl)) {
      const auto quantizer = quantized->quantizer();
      if (auto* channels = dynamic_cast<at::PerChannelAffineQuantizer*>(quantizer.get())) {
        parts = {channels->scales(), channels->zero_points()};
      }
    }
  }
  return parts;
}

}  // namespace plimsoll::detail
