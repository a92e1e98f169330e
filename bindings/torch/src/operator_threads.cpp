// SPDX-License-Identifier: Apache-2.0
#include "operator_threads.h"

#include <pthread.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include <ATen/Parallel.h>

namespace plimsoll::detail {
namespace {

// In a forked child the thread that forked has no workers, and OpenMP does not know: it would wait
// for them for ever. Threads that the child starts get workers of their own.
constinit thread_local bool t_has_forked = false;

// When the program is loaded: LibTorch may have used the workers before we do.
[[maybe_unused]] const int kRegistered =
    pthread_atfork(nullptr, nullptr, [] { t_has_forked = true; });

// Everything before hand_over() is before what follows the take_over() of another thread. The
// thread sanitizer is told so, as it does not see the barriers of OpenMP's library.
#ifdef __SANITIZE_THREAD__
void hand_over(char& point) { __tsan_release(&point); }
void take_over(char& point) { __tsan_acquire(&point); }
#else
void hand_over(char&) {}
void take_over(char&) {}
#endif

}  // namespace

void on_operator_threads(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (t_has_forked) {
    if (count > 0) body(0, count);
    return;
  }
  // A type of this source's own: an instance that another source made without OpenMP would do too.
  char begun = 0;
  char ended = 0;
  hand_over(begun);
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) {
    take_over(begun);
    body(begin, end);
    hand_over(ended);
  });
  take_over(ended);
}

}  // namespace plimsoll::detail
