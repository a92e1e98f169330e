// SPDX-License-Identifier: Apache-2.0
// Autocast with the CPU's rules, so that its results can be compared with the CPU's: every operator
// that has a kernel on AutocastCPU gets a boxed one here that casts the same way.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "kernel_registration.h"
#include "streams_of_devices.h"

namespace plimsoll::simgpu {
namespace {

// The rest of the CPU's list runs in float.
constexpr std::array<std::string_view, 19> kLowPrecision = {"conv1d",
                                                            "conv2d",
                                                            "conv3d",
                                                            "bmm",
                                                            "mm",
                                                            "linalg_vecdot",
                                                            "baddbmm",
                                                            "addmm",
                                                            "addbmm",
                                                            "linear",
                                                            "_convolution",
                                                            "matmul",
                                                            "conv_tbc",
                                                            "mkldnn_rnn_layer",
                                                            "conv_transpose1d",
                                                            "conv_transpose2d",
                                                            "conv_transpose3d",
                                                            "scaled_dot_product_attention",
                                                            "prelu"};
constexpr std::array<std::string_view, 3> kWidest = {"stack", "cat", "index_copy"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <typename F>
void for_each_tensor(c10::IValue& value, F&& use) {
  if (value.isTensor()) {
    value = use(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    const auto tensors = value.toTensorList();
    for (std::size_t i = 0; i < tensors.size(); ++i) list.push_back(use(tensors.get(i)));
    value = std::move(list);
  }
}

at::ScalarType wanted_type(std::string_view name, c10::ArrayRef<c10::IValue> arguments) {
  const at::ScalarType low = at::autocast::get_autocast_dtype(kType);
  if (is_one_of(name, kLowPrecision)) return low;
  if (!is_one_of(name, kWidest)) return at::kFloat;
  at::ScalarType widest = low;
  for (c10::IValue value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) widest = at::autocast::prioritize(widest, tensor, kType);
      return tensor;
    });
  }
  return widest;
}

void run_cast(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::AutocastPrivateUse1);
  const std::size_t count = op.schema().arguments().size();
  const auto arguments = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count, count);
  const std::string_view name = std::string_view(op.schema().name()).substr(6);  // "aten::"
  const at::ScalarType type = wanted_type(name, arguments);
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(count); value != stack->end();
       ++value) {
    for_each_tensor(*value, [&](const at::Tensor& tensor) {
      return tensor.defined() ? at::autocast::cached_cast(type, tensor, kType) : tensor;
    });
  }
  op.callBoxed(stack);
}

}  // namespace

void register_autocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  kept_library("_", kKey).fallback(torch::CppFunction::makeFallthrough());
  torch::Library& aten = kept_library("aten", kKey);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !op || !op->hasSchema()) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) continue;
    std::string full = name.name;
    if (!name.overload_name.empty()) full += "." + name.overload_name;
    aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_cast>());
  }
}

}  // namespace plimsoll::simgpu
