// SPDX-License-Identifier: Apache-2.0
// Runs any operator on the device: a boxed kernel that gives the call to a stream and returns at
// once where the results' metadata is known from an earlier call of the same signature.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace plimsoll::simgpu {

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

// Makes a device storage hold at least this many bytes, keeping what it holds.
void grow_storage(const at::Storage& storage, std::size_t bytes);

// A new storage from the allocator of the moment.
at::Storage new_storage(c10::DeviceIndex device, std::size_t bytes);

}  // namespace plimsoll::simgpu
