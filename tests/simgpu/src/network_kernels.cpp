// SPDX-License-Identifier: Apache-2.0
// Operators of neural networks that need more than the runner: dropout, attention, convolutions.
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "kernel_registration.h"
#include "operator_runner.h"

namespace plimsoll::simgpu {
namespace {

// As the CPU composes dropout: the mask's numbers come from this device's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input, input.options().dtype(at::kBool))};
  if (!train.value_or(true)) {
    return {input.clone(), at::ones(input.sizes(), input.options().dtype(at::kBool))};
  }
  at::Tensor noise = at::empty_like(input).bernoulli_(1 - p);
  at::Tensor mask = noise.to(at::kBool);
  noise.div_(1 - p);
  return {input.mul(noise), mask};
}

at::Tensor native_dropout_backward(const at::Tensor& gradient, const at::Tensor& mask,
                                   double scale) {
  // The forward's noise again, whose rounding is that of a division in the input's type.
  const at::Tensor noise = mask.to(gradient.scalar_type()).div_(1 / scale);
  return gradient.mul(noise);
}

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool is_causal, std::optional<double> scale,
                              bool enable_gqa) {
  // The CPU's choice; what it would give to its flash kernel comes to the hooks below.
  const std::int64_t choice = at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout,
                                                                is_causal, scale, enable_gqa);
  const auto flash = static_cast<std::int64_t>(sdp::SDPBackend::flash_attention);
  return choice == flash ? static_cast<std::int64_t>(sdp::SDPBackend::overrideable) : choice;
}

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                             c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

Attention attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::optional<at::Tensor>& bias, double dropout, bool is_causal,
                    bool return_debug_mask, std::optional<double> scale) {
  auto [output, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout, is_causal, bias, scale);
  // Autograd saves these; the CPU's kernel has no use for them.
  const at::Tensor nothing = at::empty({0}, query.options().dtype(at::kLong));
  return {output,          log_sum, nothing, nothing, query.sym_size(2),
          key.sym_size(2), nothing, nothing, nothing};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& bias, std::array<bool, 4> wanted,
    const at::Tensor& output, const at::Tensor& log_sum, const at::Tensor& lengths_q,
    const at::Tensor& lengths_k, c10::SymInt longest_q, c10::SymInt longest_k, double dropout,
    bool is_causal, const at::Tensor& philox_seed, const at::Tensor& philox_offset,
    std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!bias.defined() || !wanted[3],
                              "simgpu: no gradient of an attention bias");
  const std::optional<at::Tensor> mask = bias.defined() ? std::optional(bias) : std::nullopt;
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, query, key, value, output, log_sum, dropout, is_causal, mask, scale);
  return {dq, dk, dv, at::Tensor()};
}

torch::CppFunction runner() { return torch::CppFunction::makeFromBoxedFunction<&run_operator>(); }

}  // namespace

void register_network_kernels(torch::Library& library) {
  library.impl("native_dropout", TORCH_FN(native_dropout));
  library.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
  // Whole, as CUDA sees them; their composite kernels choose a back end by device type.
  library.impl("convolution", runner());
  library.impl("convolution_backward", runner());
  library.impl("_convolution", runner());
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward",
               TORCH_FN(attention_backward));
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
}

}  // namespace plimsoll::simgpu
