// SPDX-License-Identifier: Apache-2.0
#include "interposer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "plimsoll/base/error.h"
#include "plimsoll/session.h"

namespace plimsoll {
namespace detail {
namespace {

// Kernels are plain functions, so the listener has to be found through a global. Engine threads
// inherit the thread-local dispatch key, so a thread-local pointer would not do.
std::atomic<OperatorListener*> g_listener{nullptr};

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

void handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  OperatorListener* listener = g_listener.load(std::memory_order_acquire);
  if (listener == nullptr) {
    op.redispatchBoxed(below(keys), stack);
  } else {
    listener->on_operator(op, keys, stack);
  }
}

std::vector<c10::RegistrationHandleRAII> register_handlers() {
  std::vector<c10::RegistrationHandleRAII> registrations;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto kernel = [] { return c10::KernelFunction::makeFromBoxedFunction<&handle>(); };
  if (!dispatcher.hasBackendFallbackForDispatchKey(kKey)) {
    registrations.push_back(dispatcher.registerFallback(kKey, kernel(), "plimsoll"));
    return registrations;
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    registrations.push_back(
        dispatcher.registerImpl(name, kKey, kernel(), std::nullopt, nullptr, "plimsoll"));
  }
  return registrations;
}

}  // namespace

void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_interposer(kKey);
  op.redispatchBoxed(below(keys), stack);
}

void run_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  op.redispatchBoxed(below(keys), stack);
}

void Interposer::see_this_thread(bool wanted) {
  c10::impl::tls_set_dispatch_key_included(kKey, wanted);
}

void Interposer::refuse_second() {
  if (g_listener.load() == nullptr) return;
  throw InvalidArgument("a session is open already in this process; end it before the next");
}

Interposer::Interposer(OperatorListener* listener) {
  OperatorListener* none = nullptr;
  if (!g_listener.compare_exchange_strong(none, listener)) refuse_second();
  try {
    registrations_ = register_handlers();
  } catch (const std::exception& error) {
    g_listener.store(nullptr);
    throw Unsupported(std::string("LibTorch refuses the operator interposer: ") + error.what());
  }
  see_this_thread(true);
}

void Interposer::detach_after_fork() noexcept {
  g_listener.store(nullptr);
  see_this_thread(false);
}

Interposer::~Interposer() {
  see_this_thread(false);
  g_listener.store(nullptr);
}

namespace {

// Notes names; runs everything.
class Recorder final : public OperatorListener {
 public:
  void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) override {
    names.push_back(op.schema().name());
    run_kernel(op, keys, stack);
  }
  bool saw(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  std::vector<std::string> names;
};

std::string try_interposer() {
  // Whatever mode the caller is in.
  const c10::InferenceMode no_inference(false);
  const c10::AutoGradMode grad(true);
  Recorder recorder;
  at::Tensor leaf = at::ones({2, 2}).requires_grad_(true);
  {
    const Interposer interposer(&recorder);
    const at::Tensor sum = (leaf + leaf.mul(2)).sum();
    sum.backward();
  }
  const std::size_t seen = recorder.names.size();
  leaf.detach().add(1);
  for (const char* name : {"aten::add", "aten::mul", "aten::sum", "aten::ones_like"}) {
    if (!recorder.saw(name)) return std::string("the operator ") + name + " was not seen";
  }
  if (recorder.names.size() != seen) return "operators were seen after the interposer had ended";
  if (!leaf.grad().defined() || leaf.grad().sum().item<float>() != 12.0F) {
    return "an addition's gradient came out wrong";
  }
  return "";
}

}  // namespace
}  // namespace detail

std::string interposer_self_test() {
  try {
    return detail::try_interposer();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace plimsoll
