// SPDX-License-Identifier: Apache-2.0
// Sees every operator that LibTorch runs, below autograd and above the back ends.
//
// Nouns: OperatorListener, Interposer.
//
// A boxed fallback on DispatchKey::Fake, switched on per thread. Registered at run time and only
// while an Interposer lives: newer releases of LibTorch may register a fallback of their own there,
// and then a kernel per operator is registered instead, which takes precedence.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace plimsoll::detail {

// Gets each operator in place of its kernel and has to run it, see run_kernel and run_composite.
class OperatorListener {
 public:
  OperatorListener() = default;
  OperatorListener(const OperatorListener&) = delete;
  OperatorListener& operator=(const OperatorListener&) = delete;
  virtual ~OperatorListener() = default;
  virtual void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                           torch::jit::Stack* stack) = 0;
};

// Whether what a dispatch mode or a tensor subclass does in Python with an operator is seen: Python
// leaves on what stands below its own key. LibTorch before 2.13 has the two the other way round.
inline constexpr bool kPythonShowsParts = c10::DispatchKey::Fake < c10::DispatchKey::Python;

// Runs the operator's own kernel; what the kernel calls is not seen.
void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
// Runs a composite operator (they arrive whole in inference mode) so that its parts are seen.
void run_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack);

// Registers the kernels and sends the operators of this thread (and of the autograd engine's
// threads working for it) to `listener`. One at a time in a process.
// Threads: made and destroyed on one thread; suspend/resume too.
class Interposer {
 public:
  // Errors: InvalidArgument where another one lives; Unsupported where the key cannot be had.
  explicit Interposer(OperatorListener* listener);
  ~Interposer();
  // Switches the seeing of this thread's operators off and on while an interposer lives.
  static void see_this_thread(bool wanted);
  // Throws InvalidArgument where an interposer lives.
  static void refuse_second();
  // In a child that fork() made: no listener, nothing seen on this thread. The interposer itself
  // must be left alone.
  static void detach_after_fork() noexcept;
  Interposer(const Interposer&) = delete;
  Interposer& operator=(const Interposer&) = delete;

 private:
  std::vector<c10::RegistrationHandleRAII> registrations_;
};

// While it lives, this thread's operators are not seen.
class Unseen {
 public:
  Unseen() : guard_(c10::DispatchKey::Fake) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace plimsoll::detail
