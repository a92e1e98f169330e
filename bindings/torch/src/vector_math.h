// SPDX-License-Identifier: Apache-2.0
// MKL's vector functions, as LibTorch's pointwise operators call them.
//
// Noun: VectorFunction.
#pragma once

#include <span>
#include <string_view>

#include <ATen/core/ATen_fwd.h>

namespace plimsoll::detail {

struct VectorFunction {
  std::string_view name;  // as in ATen/cpu/vml.h
  at::Tensor& (*call)(at::Tensor& self);
};

// The operators whose CPU kernels are in ATen/cpu/vml.h and MKL's.
std::span<const VectorFunction> vector_functions() noexcept;

// Calls each of them, and logit, once a process, on this thread. oneMKL 2024.2, which LibTorch's
// wheels hold, chooses a function's kernel at its first call; where operator threads make that call
// at once, one of them may compute its part to half of its bits (pytorch/pytorch issue 188792).
// Then a step and the same step run later differ. Threads: safe. Cost: once some tens of calls on
// one element.
void resolve_vector_functions();

}  // namespace plimsoll::detail
