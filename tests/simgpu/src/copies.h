// SPDX-License-Identifier: Apache-2.0
// Copies between host and device, on one device, and between devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace plimsoll::simgpu {

// As CUDA's copies: on the current stream of the device; of pageable host memory the source is
// read before the call returns; a copy to pageable memory, or one that is not `non_blocking`, is
// waited for. Between devices it runs on the source's stream, ordered with both.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target);
c10::Scalar read_scalar(const at::Tensor& tensor);

}  // namespace plimsoll::simgpu
