// SPDX-License-Identifier: Apache-2.0
#include "kernel_registration.h"

#include <deque>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include "operator_runner.h"

namespace plimsoll::simgpu {
namespace {

torch::CppFunction runner() { return torch::CppFunction::makeFromBoxedFunction<&run_operator>(); }

// Composite kernels win over a back end's fallback. Where the CPU has a kernel of its own beside a
// composite one, the composite would compute with other bits, or fail.
bool is_shadowed(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd));
}

void register_shadowed(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || !is_shadowed(*op)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    std::string full = name.name;
    if (!name.overload_name.empty()) full += "." + name.overload_name;
    library.impl(full.c_str(), runner());
  }
}

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "simgpu: ", op.schema().name(),
                              ": the test device has dense strided tensors only, no sparse, "
                              "quantized or nested ones");
}

}  // namespace

torch::Library& kept_library(const char* name, c10::DispatchKey key) {
  static auto& kept = *new std::deque<torch::Library>();  // never destroyed
  return kept.emplace_back(torch::Library::IMPL, name, key, __FILE__, __LINE__);
}

void register_operator_runner() {
  kept_library("_", c10::DispatchKey::PrivateUse1).fallback(runner());
  torch::Library& library = kept_library("aten", c10::DispatchKey::PrivateUse1);
  register_tensor_kernels(library);
  register_network_kernels(library);
  register_recurrent_kernels(library);
  register_shadowed(library);
  // A copy of a conjugated tensor would otherwise be resolved by a clone, which copies, and so on.
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    kept_library("aten", key).impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
  for (const auto key :
       {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCsrPrivateUse1,
        c10::DispatchKey::QuantizedPrivateUse1, c10::DispatchKey::NestedTensorPrivateUse1}) {
    kept_library("_", key).fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
}

}  // namespace plimsoll::simgpu
