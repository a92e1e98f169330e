// SPDX-License-Identifier: Apache-2.0
#include "vector_math.h"

#include <array>
#include <cstring>
#include <mutex>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/acos_cpu_dispatch.h>
#include <ATen/ops/asin_cpu_dispatch.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/erf_cpu_dispatch.h>
#include <ATen/ops/erfc_cpu_dispatch.h>
#include <ATen/ops/erfinv_cpu_dispatch.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/log10_cpu_dispatch.h>
#include <ATen/ops/log2_cpu_dispatch.h>
#include <ATen/ops/log_cpu_dispatch.h>
#include <ATen/ops/logit_cpu_dispatch.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/tan_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/trunc_cpu_dispatch.h>

namespace plimsoll::detail {
namespace {

// The kernels themselves: no dispatch, so no mode, hook or interposer sees the calls.
constexpr std::array<VectorFunction, 16> kFunctions{{
    {"acos", at::cpu::acos_},
    {"asin", at::cpu::asin_},
    {"atan", at::cpu::atan_},
    {"cos", at::cpu::cos_},
    {"erf", at::cpu::erf_},
    {"erfc", at::cpu::erfc_},
    {"erfinv", at::cpu::erfinv_},
    {"exp", at::cpu::exp_},
    {"log", at::cpu::log_},
    {"log10", at::cpu::log10_},
    {"log2", at::cpu::log2_},
    {"sin", at::cpu::sin_},
    {"sqrt", at::cpu::sqrt_},
    {"tan", at::cpu::tan_},
    {"tanh", at::cpu::tanh_},
    {"trunc", at::cpu::trunc_},
}};

}  // namespace

std::span<const VectorFunction> vector_functions() noexcept { return kFunctions; }

void resolve_vector_functions() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      // Its value does not matter, not even where it is none.
      at::Tensor one = at::detail::empty_cpu({1}, type);
      std::memset(one.mutable_data_ptr(), 0, one.nbytes());
      for (const VectorFunction& function : kFunctions) function.call(one);
      // It calls another of MKL's logarithms than log does.
      at::cpu::logit_(one);
    }
  });
}

}  // namespace plimsoll::detail
