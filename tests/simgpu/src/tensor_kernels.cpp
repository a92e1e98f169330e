// SPDX-License-Identifier: Apache-2.0
// The operators that no fallback can serve: factories, views, storages, copies, streams.
#include <optional>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "copies.h"
#include "device_memory.h"
#include "kernel_registration.h"
#include "operator_runner.h"

namespace plimsoll::simgpu {
namespace {

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_of(std::optional<c10::Device> device) {
  const c10::DeviceIndex index = device && device->has_index() ? device->index() : current_device();
  return {kType, index};
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == at::kStrided,
                              "simgpu: the test device has strided tensors only, not ",
                              c10::layout_or_default(layout));
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_generic(size, c10::GetAllocator(kType), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType), kKeys,
                                           c10::dtype_or_default(dtype));
}

at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  return at::zeros(size, at::TensorOptions().dtype(dtype).device(device_of(device)));
}

void set_layout(const at::Tensor& self, std::int64_t offset, at::IntArrayRef size,
                at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  const auto bytes = at::detail::computeStorageNbytes(size, stride, self.dtype().itemsize(),
                                                      static_cast<std::size_t>(offset));
  if (self.numel() > 0) grow_storage(self.storage(), bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    const auto bytes = at::detail::computeStorageNbytesContiguous(
        size, self.dtype().itemsize(), static_cast<std::size_t>(self.storage_offset()));
    if (self.numel() > 0) grow_storage(self.storage(), bytes);
  }
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage_at(at::Tensor& self, at::Storage source, std::int64_t offset,
                           at::IntArrayRef size, at::IntArrayRef stride) {
  std::vector<std::int64_t> dense;
  if (stride.data() == nullptr || stride.size() != size.size()) {
    dense.assign(size.size(), 1);
    for (std::size_t d = size.size(); d-- > 1;) dense[d - 1] = dense[d] * size[d];
    stride = dense;
  }
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  set_layout(self, offset, size, stride);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements =
      static_cast<std::int64_t>(source.nbytes() / static_cast<std::size_t>(self.itemsize()));
  return set_storage_at(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_at(self, source.storage(), source.storage_offset(), source.sizes(),
                        source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage_at(self, new_storage(self.device().index(), 0), 0, {0}, {});
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  // Between host and device as well: Module::to gives parameters their new data this way.
  return self.layout() == from.layout();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(kType)->recordStream(self.storage().unsafeGetStorageImpl()->data_ptr(),
                                               stream);
}

}  // namespace

void register_tensor_kernels(torch::Library& library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("set_.source_Storage", TORCH_FN(set_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_at));
  library.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  library.impl("set_", TORCH_FN(set_nothing));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(read_scalar));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace plimsoll::simgpu
