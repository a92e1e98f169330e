// SPDX-License-Identifier: Apache-2.0
// Registers the device's kernels with LibTorch's dispatcher, each part its own.
#pragma once

#include <torch/library.h>

namespace plimsoll::simgpu {

// A library for the namespace `name` that lives as long as the process.
torch::Library& kept_library(const char* name, c10::DispatchKey key);

// Into a library for "aten" on PrivateUse1.
void register_tensor_kernels(torch::Library& library);
void register_network_kernels(torch::Library& library);
void register_recurrent_kernels(torch::Library& library);

// Fallbacks, operators that a composite kernel would take from the fallback, and what is refused.
void register_operator_runner();
void register_autocast();

}  // namespace plimsoll::simgpu
