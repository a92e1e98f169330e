// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU cells: LibTorch calls fused ones for every accelerator, and the CPU has none. Each
// is composed of this device's operators, in the order in which the CPU's cells compute.
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "kernel_registration.h"

namespace plimsoll::simgpu {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor with_bias(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates.clone();
}

at::Tensor zeros_unless(const OptionalTensor& gradient, const at::Tensor& like) {
  return gradient && gradient->defined() ? *gradient : at::zeros_like(like);
}

// The workspace is the activated gates: input, forget, cell, output.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx,
                                                         const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  at::Tensor gates = with_bias(hidden_gates, hidden_bias).add_(with_bias(input_gates, input_bias));
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid_();
  const at::Tensor forget = parts[1].sigmoid_();
  const at::Tensor cell = parts[2].tanh_();
  const at::Tensor out = parts[3].sigmoid_();
  const at::Tensor cy = forget.mul(cx).add_(in.mul(cell));
  return {out.mul(cy.tanh()), cy, gates};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  const bool has_any = (grad_hy && grad_hy->defined()) || (grad_cy && grad_cy->defined());
  if (!has_any) return {};
  const std::vector<at::Tensor> gates = workspace.chunk(4, 1);
  const at::Tensor dh = zeros_unless(grad_hy, cx);
  const at::Tensor squashed = cy.tanh();
  const at::Tensor dc =
      at::tanh_backward(dh.mul(gates[3]), squashed).add_(zeros_unless(grad_cy, cx));
  const at::Tensor d_gates = at::cat(
      {at::sigmoid_backward(dc.mul(gates[2]), gates[0]), at::sigmoid_backward(dc.mul(cx), gates[1]),
       at::tanh_backward(dc.mul(gates[0]), gates[2]),
       at::sigmoid_backward(dh.mul(squashed), gates[3])},
      1);
  return {d_gates, dc.mul(gates[1]), has_bias ? d_gates.sum(0) : at::Tensor()};
}

// The workspace: reset and input gate, new gate, the old state, the hidden part of the new gate.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = from_hidden[0].add(from_input[0]).sigmoid_();
  const at::Tensor in = from_hidden[1].add(from_input[1]).sigmoid_();
  const at::Tensor fresh = from_input[2].add(from_hidden[2].mul(reset)).tanh_();
  const at::Tensor hy = hx.sub(fresh).mul_(in).add_(fresh);
  return {hy, at::cat({reset, in, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& in = saved[1];
  const at::Tensor& fresh = saved[2];
  const at::Tensor d_state = grad_hy.mul(in);
  const at::Tensor d_in = at::sigmoid_backward(grad_hy.mul(saved[3].sub(fresh)), in);
  const at::Tensor d_fresh = at::tanh_backward(grad_hy.sub(d_state), fresh);
  const at::Tensor d_hidden = d_fresh.mul(reset);
  const at::Tensor d_reset = at::sigmoid_backward(d_fresh.mul(saved[4]), reset);
  const at::Tensor d_input_gates = at::cat({d_reset, d_in, d_fresh}, 1);
  const at::Tensor d_hidden_gates = at::cat({d_reset, d_in, d_hidden}, 1);
  if (!has_bias) return {d_input_gates, d_hidden_gates, d_state, {}, {}};
  return {d_input_gates, d_hidden_gates, d_state, d_input_gates.sum(0), d_hidden_gates.sum(0)};
}

}  // namespace

void register_recurrent_kernels(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace plimsoll::simgpu
