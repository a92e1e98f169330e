// SPDX-License-Identifier: Apache-2.0
#include "operator_threads.h"

#include <pthread.h>

#include <ATen/Parallel.h>

namespace plimsoll::detail {
namespace {

// In a forked child the thread that forked has no workers, and OpenMP does not know: it would wait
// for them for ever. Threads that the child starts get workers of their own.
constinit thread_local bool t_has_forked = false;

// When the program is loaded: LibTorch may have used the workers before we do.
[[maybe_unused]] const int kRegistered =
    pthread_atfork(nullptr, nullptr, [] { t_has_forked = true; });

}  // namespace

void on_operator_threads(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (t_has_forked) {
    if (count > 0) body(0, count);
    return;
  }
  // A type of this source's own: an instance that another source made without OpenMP would do too.
  at::parallel_for(0, count, grain,
                   [&body](std::int64_t begin, std::int64_t end) { body(begin, end); });
}

}  // namespace plimsoll::detail
